"""The state file of a kernel: what it is doing, and which execution it must interrupt.

The kernel maps the file into memory, so updating it costs no system call. Any process can read it, and it is true even
while the kernel cannot answer because a cell holds the interpreter's lock.
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

# After the header the kernel writes why it ends itself, in at most this many bytes of UTF-8.
FAREWELL = 256

# And behind that the number of the cell that runs, or was the last.
COUNT = struct.Struct("<I")
COUNT_AT = HEADER.size + FAREWELL
SIZE = COUNT_AT + COUNT.size

# Where an idle kernel writes since when something that a cell left behind has been running on its main thread.
BUSY_SINCE = struct.Struct("<d")
BUSY_SINCE_AT = struct.calcsize("<4sIQ")

# Where the host writes the execution that it is about to interrupt by a signal.
TARGET_AT = HEADER.size - 32

# More than a kernel can run, and the most that a record accepts. A cell can write anything to the file.
MOST_EXECUTIONS = 2**53

STARTING, IDLE, BUSY = range(3)
_ACTIVITIES: tuple[Literal["starting", "idle", "busy"], ...] = ("starting", "idle", "busy")

# The first second of the year 10000, beyond which times cannot be written. A cell can write anything to the file.
_LATEST = 253_402_300_800.0


@dataclass(eq=False, repr=False, slots=True)
class KernelState:
    """What a kernel reports about itself; times are seconds since the epoch, 0 for never.

    `busy_since` of an idle kernel is about something that a cell left behind. `client` is the process that sent the
    running execution, 0 if there is none or it is unknown.
    `execution_count` is the number of the cell that runs or ran last, as `In` and `Out` have it.
    """

    activity: Literal["starting", "idle", "busy"]
    executions: int
    busy_since: float
    last_used: float
    running: str
    client: int
    farewell: str
    execution_count: int = 0


def parse(data: bytes) -> KernelState | None:
    """Parses a state file; None if these bytes are not one."""
    if len(data) < HEADER.size:
        return None
    magic, activity, executions, busy_since, last_used, client, running, _ = HEADER.unpack_from(data)
    if magic != MAGIC or activity > BUSY or executions > MOST_EXECUTIONS:
        return None
    if not 0 <= busy_since < _LATEST or not 0 <= last_used < _LATEST:
        return None
    execution_id = running.rstrip(b"\0").decode("ascii", "replace")
    said = data[HEADER.size : COUNT_AT].rstrip(b"\0").decode("utf-8", "ignore")
    farewell = "".join(character if character.isprintable() else "?" for character in said)
    (count,) = COUNT.unpack_from(data, COUNT_AT) if len(data) >= SIZE else (0,)
    return KernelState(_ACTIVITIES[activity], executions, busy_since, last_used, execution_id, client, farewell, count)


def target(execution_id: str) -> bytes:
    """Returns the bytes of an execution's id in the file."""
    return execution_id.encode("ascii", "replace")[:32].ljust(32, b"\0")


def farewell(reason: str) -> bytes:
    """Returns the bytes of a farewell in the file, cut to its room."""
    return reason.encode("utf-8", "replace")[:FAREWELL].ljust(FAREWELL, b"\0")
