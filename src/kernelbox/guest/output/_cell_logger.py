"""Writes each cell with its outputs to the kernel's log (wire/_cell_log.py), which outlives the process.

What a client is sent while a cell runs is written first; the rest of it, and the end of the cell, when the client has
the result. Text that is still in the pipes when the process dies is in the keeper's note.
"""

from __future__ import annotations

import errno
from collections import deque

from kernelbox.guest._stdlib import os, time
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._cell_log import FULL, HEADER_SIZE, SHOWN, make_began, make_ended, make_header, make_record
from kernelbox.wire._cell_log import read_number as read_log_number
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Done, Execute, Output

keep_builtins(globals())

# Bytes that are kept of the beginning, and again of the end, of what one cell writes and shows: some ten plots.
_MOST_OF_CELL = 1024 * 1024

# What a frame takes beside its bytes, in CPython.
_FRAME_WEIGHT = 50


class CellLogger:
    """Logs the cells of front ends and callers, except comm messages and cells that clients keep out of it."""

    def __init__(self, files: tuple[int, int]) -> None:
        """`files` are those of the log, the newer one first."""
        self._running: _RunningCell | None = None
        self.reopen(files)

    def reopen(self, files: tuple[int, int]) -> None:
        """Writes to these files from now on: a copy of a kernel has files of its own, in which its host has put all
        that was in the log until then."""
        self._files = [_LogFile(fd) for fd in files]
        self._is_full = False

    def begin(self, request: Execute) -> None:
        """Begins a cell, unless its request keeps it out of the history."""
        self._running = None
        if request.store_history and not request.silent and request.language != "comm":
            self._running = _RunningCell(request.id)
            self._write(make_began(request.id, request.language, request.code, time.time()), between_cells=True)

    def add(self, frame: bytes) -> None:
        """Takes what the running cell has written or shown."""
        if self._running is not None:
            self._running.add(frame)

    def flush(self) -> None:
        """Writes what the running cell has shown so far, except what is kept only if it comes last."""
        if self._running is not None and (frames := self._running.take_first()):
            self._write(make_record(SHOWN, time.time(), frames))

    def end(self, frame: bytes, done: Done) -> None:
        """Writes the end of the running cell."""
        cell, self._running = self._running, None
        if cell is not None:
            cell.add(frame)
            status = "interrupted" if done.interrupted else done.status
            self._write(make_ended(done.execution_count, status, time.time(), cell.take_all()))

    def _write(self, data: bytes, *, between_cells: bool = False) -> None:
        """Writes a record, or nothing. A cell stays in one file; a new one begins in the other if this one is full.

        The log ends when a cell closes its descriptors: their numbers may be those of other files by then.
        """
        if not self._files:
            return
        try:
            size = self._files[0].size()
            if between_cells and (size > FULL or self._is_full):
                self._turn()
                size = self._files[0].size()
            self._is_full |= not self._files[0].append(data, size)
        except OSError:
            self._files = []

    def _turn(self) -> None:
        """Continues in the other file."""
        number = self._files[0].number()
        self._files.reverse()
        self._files[0].empty()
        self._is_full = False
        self._files[0].append(make_header(number + 1), 0)


class _LogFile:
    """A file of the log, by a descriptor that cells can close."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        info = os.fstat(fd)
        self._identity = info.st_dev, info.st_ino

    def size(self) -> int:
        """Returns its size; raises OSError if the descriptor is that of another file, or of none."""
        info = os.fstat(self._fd)
        if (info.st_dev, info.st_ino) != self._identity:
            raise OSError(errno.EBADF, "a cell has closed the log")
        return info.st_size

    def append(self, data: bytes, size: int) -> bool:
        """Writes all of the data to a file of this size, or nothing. False if the file cannot grow any more."""
        try:
            if (written := os.write(self._fd, data)) < len(data):
                os.write(self._fd, data[written:])  # says what is wrong
        except OSError as exc:
            os.ftruncate(self._fd, size)
            return exc.errno != errno.EFBIG  # a full disk may have room again
        return True

    def number(self) -> int:
        return read_log_number(os.pread(self._fd, HEADER_SIZE, 0))

    def empty(self) -> None:
        self.size()
        os.ftruncate(self._fd, 0)


class _RunningCell:
    """The frames of a cell that have not been written: the first ones, and the last ones of a cell that shows much."""

    __slots__ = ("_cut", "_first", "_id", "_last", "_last_size", "_room")

    def __init__(self, execution_id: str) -> None:
        self._id = execution_id
        self._first: list[bytes] = []
        self._last: deque[bytes] | None = None
        self._room = _MOST_OF_CELL
        self._last_size = self._cut = 0

    def add(self, frame: bytes) -> None:
        weight = len(frame) + _FRAME_WEIGHT
        if self._last is None:
            if weight <= self._room:
                self._first.append(frame)
                self._room -= weight
                return
            self._last = deque()
        self._last.append(frame)
        self._last_size += weight
        while self._last_size > _MOST_OF_CELL:
            self._last_size -= len(self._last.popleft()) + _FRAME_WEIGHT
            self._cut += 1

    def take_first(self) -> bytes:
        frames, self._first = b"".join(self._first), []
        return frames

    def take_all(self) -> bytes:
        notice = f"\n[… {self._cut:,} outputs cut …]\n" if self._cut else ""
        between = encode(Output(self._id, "stderr", notice)) if notice else b""
        return b"".join((*self._first, between, *(self._last or ())))
