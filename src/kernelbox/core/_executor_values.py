"""What a CodeExecutor returns and yields: results, chunks of text, notices of tools, variables."""

from __future__ import annotations

from kernelbox.base._errors import KernelBoxError
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, Literal

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


@dataclass(frozen=True, slots=True)
class CodeExecutionChunk:
    """Text that a cell has just written or shown."""

    text: str


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
            f"kernel {kernel!r} sent what is no list of variables; a cell has tampered with it: restart the kernel"
        )
    return [Variable(**variable) for variable in described[:_MOST_VARIABLES]]


def _is_variable(described: object) -> bool:
    match described:
        case {"name": str(name), "type": str(kind), "size": int(size), "preview": str(preview), **rest}:
            longest = max(map(len, (name, kind, preview)))
            return not rest and longest <= _LONGEST_TEXT and type(size) is int and size >= 0
    return False
