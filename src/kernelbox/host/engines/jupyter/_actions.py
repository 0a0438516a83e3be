"""What a conversation with a Jupyter kernel decides to do, as values; `JupyterConnection` does it."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from kernelbox.wire._messages import Message


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Sends a request to the kernel; with `patience`, waits so many seconds for the kernel to have answered it."""

    channel: Literal["shell", "control", "stdin"]
    kind: str
    content: dict[str, Any]
    id: str
    patience: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hands a message to the client."""

    message: Message


@dataclass(frozen=True, slots=True)
class JoinQueue:
    """Takes a place in the queue of clients; `first_in_queue` or `behind_others` answers."""


@dataclass(frozen=True, slots=True)
class LeaveQueue:
    """Leaves the queue, whether others stood before us or we were first."""


@dataclass(frozen=True, slots=True)
class WriteActivity:
    """Writes into the state file what the kernel does; only the first in the queue may."""

    activity: Literal["idle", "busy"]
    execution_id: str = ""


@dataclass(frozen=True, slots=True)
class InterruptGroup:
    """Sends SIGINT to the kernel's process group, as a terminal does."""


@dataclass(frozen=True, slots=True)
class KillDescendants:
    """Kills the processes that the kernel started since `busy` was written; `descendants_killed` answers."""


@dataclass(frozen=True, slots=True)
class KillKernel:
    """Kills the kernel's process."""


@dataclass(frozen=True, slots=True)
class WriteReason:
    """Writes down why the kernel's process is about to end, for all who wait for it."""

    reason: str


Action = (
    SendRequest
    | Deliver
    | JoinQueue
    | LeaveQueue
    | WriteActivity
    | InterruptGroup
    | KillDescendants
    | KillKernel
    | WriteReason
)
