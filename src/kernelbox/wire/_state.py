"""The state file of a kernel: what it is doing, and what it has written but not sent yet.

The kernel maps the file into memory, so that a cell costs no system call for it, any process can read it, and it
outlives the kernel: text printed just before a crash is still there. Layout: a header, then text in segments of
(stream, length, UTF-8).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kernelbox.wire._messages import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

STREAMS = ("stdout", "stderr")

# magic, activity, executions, busy since, last used, running execution, number of the first segment, bytes in use
HEADER = struct.Struct("<4sIQdd32sII")
SEGMENT = struct.Struct("<II")
MAGIC = b"KBX1"

# A flush at 64 KiB keeps system calls rare; more would only delay the reader.
TEXT_ROOM = 64 * 1024
SIZE = HEADER.size + TEXT_ROOM

STARTING, IDLE, BUSY = range(3)


@dataclass(eq=False, repr=False, slots=True)
class KernelState:
    """What a kernel says of itself; times are seconds since the epoch, 0 for never."""

    activity: Literal["starting", "idle", "busy"]
    executions: int
    busy_since: float
    last_used: float


def parse(data: bytes) -> KernelState | None:
    """Reads the header; None if these are not the bytes of a state file."""
    if len(data) < HEADER.size:
        return None
    magic, activity, executions, busy_since, last_used, _, _, _ = HEADER.unpack_from(data)
    if magic != MAGIC or activity > BUSY:
        return None
    return KernelState(("starting", "idle", "busy")[activity], executions, busy_since, last_used)


def leftovers(data: bytes) -> list[Output]:
    """Reads the text that had not been sent, as the messages it would have become."""
    if parse(data) is None:
        return []
    _, _, _, _, _, running, seq, used = HEADER.unpack_from(data)
    execution_id = running.rstrip(b"\0").decode("ascii", "replace")
    outputs: list[Output] = []
    start, end = HEADER.size, min(HEADER.size + used, len(data))
    while start + SEGMENT.size <= end:
        stream, length = SEGMENT.unpack_from(data, start)
        start += SEGMENT.size
        text = data[start : min(start + length, end)].decode("utf-8", "replace")
        if stream < len(STREAMS):
            outputs.append(Output(execution_id, seq + len(outputs), STREAMS[stream], text))
        start += length
    return outputs
