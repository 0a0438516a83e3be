"""What a tool's server says while the tool runs."""

from __future__ import annotations

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal


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
