"""The actions that a conversation with a Jupyter kernel decides on, as values. `JupyterConnection` carries them out.

A message among them is handed to the client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kernelbox.wire._messages import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Sends a request to the kernel; with `patience`, waits that many seconds for the answer."""

    channel: Literal["shell", "control", "stdin"]
    kind: str
    content: dict[str, Any]
    id: str
    patience: float = 0.0
    metadata: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteActivity:
    """Writes into the state file what the kernel does; only the first in the queue may do so."""

    activity: Literal["idle", "busy"]
    execution_id: str = ""


@dataclass(frozen=True, slots=True)
class WriteReason:
    """Notes why the kernel's process is about to end, for all clients that wait for it."""

    reason: str


class Step(Enum):
    """An action that needs no further values."""

    JOIN_QUEUE = "enters the queue of clients; `first_in_queue` or `behind_others` answers"
    LEAVE_QUEUE = "leaves the queue, from any position"
    INTERRUPT_GROUP = "sends SIGINT to the kernel's process group, as a terminal does"
    KILL_DESCENDANTS = "kills what the kernel started since it became busy; `descendants_killed` answers"
    KILL_KERNEL = "kills the kernel's process"


Action = Message | SendRequest | WriteActivity | WriteReason | Step
