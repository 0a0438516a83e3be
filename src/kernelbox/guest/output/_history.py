"""The history: the last cells that a kernel's process has run, with their outputs, in bounded memory.

It keeps the frames as they were sent, so a history that nobody asks for costs nothing.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Execute, Output

keep_builtins(globals())

# Bytes of all cells together. In base64, which one reply carries them in, that is two thirds of what it may have.
_MOST = 4 * 1024 * 1024

# Bytes that are kept of the beginning, and again of the end, of what one cell writes and shows: some ten plots.
_MOST_OF_CELL = 1024 * 1024

# What a cell and a frame take beside their bytes, in CPython.
_CELL_WEIGHT = 300
_FRAME_WEIGHT = 50


class CellHistory:
    """Collects the cells of front ends and callers, except comm messages and cells that clients keep out of it."""

    def __init__(self) -> None:
        self._cells: deque[_PastCell] = deque()
        self._running: _PastCell | None = None
        self._size = 0
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<CellHistory {len(self._cells)} cells {self._size} bytes>"

    def begin(self, request: Execute) -> None:
        """Begins a cell, unless its request keeps it out of the history."""
        kept = request.store_history and not request.silent and request.language != "comm"
        self._running = _PastCell(request) if kept else None

    def add(self, frame: bytes) -> None:
        """Takes what the running cell has written or shown."""
        if self._running is not None:
            self._running.add(frame)

    def end(self, frame: bytes, execution_count: int | None) -> None:
        """Takes the end of the running cell, and drops the oldest cells if there are too many."""
        cell, self._running = self._running, None
        if cell is None:
            return
        cell.end(frame, execution_count)
        self._cells.append(cell)
        self._size += cell.weight
        while self._size > _MOST:
            self._size -= self._cells.popleft().weight
            self._dropped += 1

    def describe(self) -> dict[str, Any]:
        """Returns the cells: language, number, code, and the frames one behind the other."""
        cells = [[cell.language, cell.execution_count, cell.code, cell.frames()] for cell in self._cells]
        return {"cells": cells, "dropped": self._dropped}


class _PastCell:
    """A cell, and its first and last frames."""

    __slots__ = ("_cut", "_first", "_last", "_last_size", "_size", "code", "execution_count", "id", "language")

    def __init__(self, request: Execute) -> None:
        self.id = request.id
        self.code = request.code
        self.language = request.language
        self.execution_count: int | None = None
        self._first: list[bytes] = []
        self._last: deque[bytes] | None = None
        self._size = self._last_size = self._cut = 0

    @property
    def weight(self) -> int:
        count = len(self._first) + len(self._last or ())
        return _CELL_WEIGHT + 4 * len(self.code) + count * _FRAME_WEIGHT + self._size + self._last_size

    def add(self, frame: bytes) -> None:
        if self._last is None:
            if self._size + len(frame) + _FRAME_WEIGHT * len(self._first) <= _MOST_OF_CELL:
                self._first.append(frame)
                self._size += len(frame)
                return
            self._last = deque()
        self._last.append(frame)
        self._last_size += len(frame)
        while self._last_size + _FRAME_WEIGHT * len(self._last) > _MOST_OF_CELL:
            self._last_size -= len(self._last.popleft())
            self._cut += 1

    def end(self, frame: bytes, execution_count: int | None) -> None:
        self.add(frame)
        self.execution_count = execution_count

    def frames(self) -> bytes:
        notice = f"\n[… {self._cut:,} outputs cut …]\n" if self._cut else ""
        between = encode(Output(self.id, "stderr", notice)) if notice else b""
        return b"".join((*self._first, between, *(self._last or ())))
