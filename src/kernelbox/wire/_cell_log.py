"""The log of a kernel's cells, as bytes: the kernel writes it, hosts read it, and it outlives the process.

A log is two files. When the newer one is full, the kernel empties the older one and continues there, so both together
stay bounded and a crash at any moment leaves a readable log. A file is a header, which numbers it, and records:

    +-------+--------+   +------+------+--------+------+
    | magic | number |   | kind | time | length | body |  …
    +-------+--------+   +------+------+--------+------+

    BEGAN    a cell begins: its id, its language and its code, with a zero byte between them
    SHOWN    frames of what it has written and shown so far
    ENDED    a cell has ended: its number and how it ended (ENDING), then the rest of its frames
    LOST     written by a host: the process has ended, and why

Cells can write to the files as well. So hosts check all that they read there, and only show it.
"""

from __future__ import annotations

import struct

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._values import dataclass

keep_builtins(globals())

_HEADER = struct.Struct("!8sQ")
_MAGIC = b"kbcells1"
HEADER_SIZE = _HEADER.size

_RECORD = struct.Struct("!BdI")
BEGAN, SHOWN, ENDED, LOST = 1, 2, 3, 4

# The count of an execution, -1 for none, and the status of its end.
_ENDING = struct.Struct("!qB")
_STATUSES = ("ok", "error", "aborted", "interrupted")

# Bytes after which a file is full. Two of them hold some thousand ordinary cells, or some twenty plots.
FULL = 4 * 1024 * 1024

# Bytes of a file that hosts read: a file that is just not full, and one cell with the longest code and output.
MOST = FULL + 10 * 1024 * 1024

# Characters of a cell's code that are kept.
LONGEST_CODE = 1_000_000


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a log; `at` is its time in seconds since 1970."""

    kind: int
    at: float
    body: bytes


def make_header(number: int) -> bytes:
    return _HEADER.pack(_MAGIC, number)


def read_number(data: bytes) -> int:
    """Returns the number in the header of a file; 0 if it has no header."""
    if len(data) < HEADER_SIZE:
        return 0
    magic, number = _HEADER.unpack_from(data)
    return int(number) if magic == _MAGIC and number < 1 << 63 else 0


def make_record(kind: int, at: float, body: bytes) -> bytes:
    return _RECORD.pack(kind, at, len(body)) + body


def make_began(execution_id: str, language: str, code: str, at: float) -> bytes:
    if len(code) > LONGEST_CODE:
        code = f"{code[:LONGEST_CODE]}\n# [… {len(code) - LONGEST_CODE:,} characters cut …]"
    return make_record(BEGAN, at, f"{execution_id}\0{language}\0{code}".encode("utf-8", "surrogatepass"))


def make_ended(count: int | None, status: str, at: float, frames: bytes) -> bytes:
    return make_record(ENDED, at, _ENDING.pack(-1 if count is None else count, _STATUSES.index(status)) + frames)


def read_records(data: bytes) -> tuple[list[LogRecord], int]:
    """Returns the records of a file, and the size of the part that has them: a crash may have cut the last one."""
    if not read_number(data):
        return [], 0
    records, at = [], HEADER_SIZE
    while len(data) - at >= _RECORD.size:
        kind, moment, length = _RECORD.unpack_from(data, at)
        begins = at + _RECORD.size
        if not BEGAN <= kind <= LOST or begins + length > len(data):
            break
        records.append(LogRecord(kind, moment, data[begins : begins + length]))
        at = begins + length
    return records, at


def read_began(body: bytes) -> tuple[str, str, str]:
    """Returns id, language and code; raises ValueError if a cell has forged the record."""
    execution_id, language, code = body.decode("utf-8", "surrogatepass").split("\0", 2)
    return execution_id, language, code


def read_ended(body: bytes) -> tuple[int | None, str, bytes]:
    """Returns the count, the status and the frames; raises ValueError if a cell has forged the record."""
    if len(body) < _ENDING.size:
        raise ValueError("a record is too short")
    count, status = _ENDING.unpack_from(body)
    if status >= len(_STATUSES):
        raise ValueError("a cell ended in an unknown way")
    return None if count < 0 else count, _STATUSES[status], body[_ENDING.size :]
