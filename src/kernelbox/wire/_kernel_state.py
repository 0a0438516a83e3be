"""The state file of a kernel: what it is doing, and which execution it is to interrupt.

The kernel maps the file into memory, so that a cell costs no system call for it, any process can read it, and it is
true even while the kernel cannot say anything because a cell holds the interpreter.
"""

from __future__ import annotations

import struct

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

keep_builtins(globals())

STREAMS = ("stdout", "stderr")

# magic, activity, executions, busy since, last used, pid of the client, running execution, execution to interrupt
HEADER = struct.Struct("<4sIQddI32s32s")
MAGIC = b"KBX1"

# Behind the header the kernel writes why it ends of its own accord, in at most so many bytes of UTF-8.
FAREWELL = 256
SIZE = HEADER.size + FAREWELL

# Where the kernel writes since when something that a cell has left behind runs on its main thread, while it is idle.
BUSY_SINCE = struct.Struct("<d")
BUSY_SINCE_AT = struct.calcsize("<4sIQ")

# Where the host writes the execution that it is about to interrupt by signal.
TARGET_AT = HEADER.size - 32

# More than a kernel runs in a lifetime, and what a record may say. A cell can write anything to the file.
MOST_EXECUTIONS = 2**53

STARTING, IDLE, BUSY = range(3)
_ACTIVITIES: tuple[Literal["starting", "idle", "busy"], ...] = ("starting", "idle", "busy")

# The first second of the year 10000, beyond which times cannot be written. A cell can write anything to the file.
_LATEST = 253_402_300_800.0


@dataclass(eq=False, repr=False, slots=True)
class KernelState:
    """What a kernel says of itself; times are seconds since the epoch, 0 for never.

    An idle kernel may be busy too, with what a cell has left behind.
    `client` is the process that the running execution was sent by, 0 if there is none or the system did not say.
    """

    activity: Literal["starting", "idle", "busy"]
    executions: int
    busy_since: float
    last_used: float
    running: str
    client: int
    farewell: str


def parse(data: bytes) -> KernelState | None:
    """Reads the header; None if these are not the bytes of a state file."""
    if len(data) < HEADER.size:
        return None
    magic, activity, executions, busy_since, last_used, client, running, _ = HEADER.unpack_from(data)
    if magic != MAGIC or activity > BUSY or executions > MOST_EXECUTIONS:
        return None
    if not 0 <= busy_since < _LATEST or not 0 <= last_used < _LATEST:
        return None
    execution_id = running.rstrip(b"\0").decode("ascii", "replace")
    said = data[HEADER.size : SIZE].rstrip(b"\0").decode("utf-8", "ignore")
    farewell = "".join(character if character.isprintable() else "?" for character in said)
    return KernelState(_ACTIVITIES[activity], executions, busy_since, last_used, execution_id, client, farewell)


def target(execution_id: str) -> bytes:
    """Returns what stands in the file for an execution."""
    return execution_id.encode("ascii", "replace")[:32].ljust(32, b"\0")


def farewell(reason: str) -> bytes:
    """Returns what stands behind the header when the kernel ends of its own accord, cut to its room."""
    return reason.encode("utf-8", "replace")[:FAREWELL].ljust(FAREWELL, b"\0")
