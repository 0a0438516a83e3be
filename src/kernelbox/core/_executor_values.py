"""The values of a CodeExecutor: results, chunks of text, notices of tools, variables, errors."""

from __future__ import annotations

from kernelbox.base._errors import KernelBoxError
from kernelbox.wire._output_limit import bound
from kernelbox.wire._values import dataclass, field
from kernelbox.wire.results._cell_errors import failure_of
from kernelbox.wire.results._readable import Readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Literal

    from kernelbox.wire._results import ErrorInfo, ExecutionResult, OutputItem, Status
    from kernelbox.wire.results._readable import WholeText

# Limits of a kernel's list of variables; guest/serve/_queries.py cuts it earlier.
_MOST_VARIABLES = 10_000
_LONGEST_TEXT = 256

_DOTTED = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."


@dataclass(frozen=True, repr=False, slots=True)
class CodeExecutionResult(Readable):
    """What a cell wrote and showed.

    `text` is everything in order, None if there was nothing; `images` are files. `changed` names the variables that
    the cell added, changed and removed. `cancelled` is set if `CodeExecutor.cancel` ended it. The other fields are
    those of ExecutionResult.
    """

    text: str | None
    images: list[Path]
    changed: dict[str, list[str]] | None = None
    cancelled: bool = False
    status: Status = "success"
    output: str = ""
    stderr: str = ""
    error: ErrorInfo | None = None
    return_value: str | None = None
    value: Any = None
    exit_code: int | None = None
    execution_count: int | None = None
    duration_ms: int = 0
    outputs: list[OutputItem] = field(default_factory=list)
    truncated: bool = False
    state: Literal["kept", "lost", "rolled back"] = "kept"
    ending: Literal["finished", "interrupted", "restarted", "died", "rolled back", "never ran"] = "finished"
    kernel_id: str = ""
    name: str = ""
    opened: bool = False
    execution_id: str = ""
    restored_from: int | None = None
    lost_executions: list[int] = field(default_factory=list)
    kept: WholeText | None = None
    home: str = ""

    @classmethod
    def of(cls, result: ExecutionResult, *, cancelled: bool, text_limit: int) -> CodeExecutionResult:
        """Makes the result of a cell; raises CodeExecutionError or ExecutionTimeout for one that did not succeed.

        A cell that was `cancelled` has a result, unless it failed by itself.
        """
        cancelled = cancelled and result.ending in ("interrupted", "restarted", "rolled back", "never ran")
        if result.status == "timeout" or (result.error is not None and not cancelled):
            raise failure_of(result)
        from pathlib import Path  # not at the top: the command line loads this module and needs no Path

        fields = {name: getattr(result, name) for name in _SHARED}
        fields["text"] = (bound(_written(result), text_limit) if cancelled else result.text) or None
        fields["images"] = [Path(path) for path in result.images]
        return cls(**fields, cancelled=cancelled and result.error is not None)


_SHARED = [name for name in CodeExecutionResult.__match_args__ if name != "cancelled"]


@dataclass(frozen=True, slots=True)
class CodeExecutionChunk:
    """Text that a cell has just written or shown."""

    text: str


class Lines:
    """Puts each display of a cell on its own lines between the written text, as in the result's text."""

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


def read_completions(kernel: str, code: str, content: dict[str, Any]) -> list[str]:
    """Reads what a kernel offers to complete code with, as whole names; its own cells can forge it."""
    matches, start = content.get("matches"), content.get("cursor_start")
    if not isinstance(matches, list) or not all(isinstance(match, str) for match in matches) or type(start) is not int:
        why = content.get("evalue", "a cell has tampered with it: restart the kernel")
        raise KernelBoxError(f"kernel {kernel!r} cannot complete code: {why!s:.1000}")
    before = code[: max(0, start)]  # what is completed begins in the middle of a dotted name
    begun = before[len(before.rstrip(_DOTTED)) :] if before.isascii() else ""
    return [begun + match for match in matches]


def _is_variable(described: object) -> bool:
    match described:
        case {"name": str(name), "type": str(kind), "size": int(size), "preview": str(preview), **rest}:
            longest = max(map(len, (name, kind, preview)))
            return not rest and longest <= _LONGEST_TEXT and type(size) is int and size >= 0
    return False
