"""What a CodeExecutor returns, yields and raises: results, chunks of text, notices of tools, variables, errors."""

from __future__ import annotations

from kernelbox.base._errors import CodeExecutionError, ExecutionTimeout, KernelBoxError
from kernelbox.wire._bounded import bound
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Literal

    from kernelbox.wire._results import ExecutionResult, OutputItem

# What a kernel says of its variables; guest/serve/_queries.py cuts before.
_MOST_VARIABLES = 10_000
_LONGEST_TEXT = 256


@dataclass(frozen=True, slots=True)
class CodeExecutionResult:
    """What a cell wrote and showed.

    `text` is everything in order, None if there was nothing; `images` are files. `changed` names the variables that
    the cell added, changed and removed. `cancelled` is set if `CodeExecutor.cancel` ended it.
    """

    text: str | None
    images: list[Path]
    changed: dict[str, list[str]] | None = None
    cancelled: bool = False

    @classmethod
    def of(cls, result: ExecutionResult, *, cancelled: bool, text_limit: int) -> CodeExecutionResult:
        """Makes the result of a cell; raises CodeExecutionError or ExecutionTimeout for one that did not succeed.

        A cell that was `cancelled` has a result, unless it failed by itself.
        """
        from pathlib import Path  # the command line, which loads this module, needs none

        images = [Path(path) for path in result.images]
        if result.status == "timeout":
            raise ExecutionTimeout.of(result, images)
        if cancelled and result.ending in ("interrupted", "restarted", "never ran"):
            text = bound(_written(result), text_limit)
            return cls(text or None, images, result.changed, cancelled=True)
        if result.error is not None:
            raise CodeExecutionError.of(result, images)
        return cls(result.text or None, images, result.changed)


@dataclass(frozen=True, slots=True)
class CodeExecutionChunk:
    """Text that a cell has just written or shown."""

    text: str


class Lines:
    """Puts what a cell shows on lines of its own between what it writes, as in the result's text."""

    def __init__(self) -> None:
        self._at_start = True

    def add(self, item: OutputItem) -> str:
        """Returns the text of an output, with the line breaks that it needs."""
        text = item.readable
        if not text or item.kind == "update_display_data":
            return ""
        if item.kind == "stream":
            self._at_start = text.endswith("\n")
            return text
        before, self._at_start = "" if self._at_start else "\n", True
        return f"{before}{text.rstrip()}\n"


def _written(result: ExecutionResult) -> str:
    """Returns what an interrupted cell had written, without the traceback of the interrupt."""
    lines = Lines()
    return "".join(lines.add(item) for item in result.outputs if item.kind != "error").rstrip()


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """A notice about a running tool call: how far it is (`progress`, of `total`), or a line of the server's log."""

    kind: Literal["progress", "log"]
    server_name: str
    tool_name: str
    text: str
    progress: float | None = None
    total: float | None = None
    level: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A name that lives in the kernel: its type, its size in bytes and the beginning of its repr."""

    name: str
    type: str
    size: int
    preview: str


def read_variables(kernel: str, content: dict[str, Any]) -> list[Variable]:
    """Reads a kernel's answer, which its own cells can forge."""
    described = content.get("variables")
    if described is None:
        raise KernelBoxError(f"kernel {kernel!r} cannot list its variables: {content.get('evalue', 'unknown')!s:.1000}")
    if not isinstance(described, list) or not all(map(_is_variable, described)):
        raise KernelBoxError(
            f"kernel {kernel!r} did not send a list of variables; a cell has tampered with it: restart the kernel"
        )
    return [Variable(**variable) for variable in described[:_MOST_VARIABLES]]


def _is_variable(described: object) -> bool:
    match described:
        case {"name": str(name), "type": str(kind), "size": int(size), "preview": str(preview), **rest}:
            longest = max(map(len, (name, kind, preview)))
            return not rest and longest <= _LONGEST_TEXT and type(size) is int and size >= 0
    return False
