"""What a kernel has added to its working directory, and which of the kernels that share it has added most."""

from __future__ import annotations

import math
import time

from kernelbox.usage._disk_usage import LEAST_FILE, Walk
from kernelbox.usage._processes import hide, unlinked_files

# Files that are counted in one look, which takes some ten milliseconds.
_FILES_AT_ONCE = 2000

# The working directory is counted when so much of what is left of the limit is gone from its file system.
_PART_OF_REST = 0.5
_LEAST_PART = 1 / 64

# And from time to time, in seconds, of which it may take a part: a file can be moved there from elsewhere, and some
# file systems do not tell what is free.
_COUNT_EVERY = 2.0
_COUNT_DUTY = 0.02


class Disk:
    """What a kernel has added to its working directory."""

    def __init__(self, gauge: Walk, before: int, limit: float) -> None:
        self._before = before
        self._limit = limit
        self._walk: Walk | None = None
        self._walked = 0.0
        self._count_at = time.monotonic() + _COUNT_EVERY
        self._gauge = gauge
        self._free = self._free_before = self._gauge.free
        self._added = 0
        self.place = self._gauge.place
        self._written: dict[int, float] = {}
        self._anew = False

    def spare(self, pid: int, written: dict[int, float]) -> bool:
        """Tells whether another kernel has written more than this one; if so, starts to count from zero.

        `written` is what each kernel of this directory has written since its start, by pid.
        """
        known = {each: amount for each, amount in self._written.items() if amount < math.inf}
        recent = {each: amount - known.get(each, 0) for each, amount in written.items()}
        if recent[pid] >= max(recent.values()):
            return False
        self._written, self._before, self._added = written, self._before + self._added, 0
        return True

    def begin_anew(self) -> None:
        """Counts from what is there now: a kernel that may have added it is gone."""
        self._walk, self._anew, self._added = self._gauge.again(), True, 0
        self._free_before = self._gauge.free

    def measure(self, pids: list[int], kernel: int) -> int:
        """Returns the bytes that were added, as far as they are known; counts on if there may be more."""
        free = self._gauge.free
        if self._walk is None and self._is_due(free):
            self._free = free
            try:
                self._walk = self._gauge.again()
            except PermissionError:  # it is closed itself
                self._added = max(self._added, self._lost(free))
        if self._walk is not None:
            began = time.monotonic()
            self._count(self._walk, pids, kernel, free)
            self._walked += time.monotonic() - began
        return self._added

    def _is_due(self, free: tuple[int, int]) -> bool:
        """Tells whether the directory is to be counted: the file system has lost some, or it was long ago."""
        self._free = (max(self._free[0], free[0]), max(self._free[1], free[1]))  # others may have given some back
        lost = self._free[0] - free[0] + (self._free[1] - free[1]) * LEAST_FILE
        part = max((self._limit - self._added) * _PART_OF_REST, self._limit * _LEAST_PART)
        return lost > part or time.monotonic() >= self._count_at

    def _count(self, walk: Walk, pids: list[int], kernel: int, free: tuple[int, int]) -> None:
        if not walk.step(_FILES_AT_ONCE):
            if not self._anew:  # a directory can grow faster than it is counted
                self._added = max(self._added, walk.bytes - self._before)
            return
        now = walk.bytes + unlinked_files(pids, walk.place[0])
        if self._anew:
            self._before, self._anew = now, False
        self._added = now - self._before
        if walk.closed or hide(pids, kernel):
            self._added = max(self._added, self._lost(free))
        self._count_at = time.monotonic() + max(_COUNT_EVERY, self._walked / _COUNT_DUTY)
        self._walk, self._walked = None, 0.0

    def _lost(self, free: tuple[int, int]) -> int:
        """Returns the bytes that the file system has lost: a kernel that closes a directory, or hides its open files,
        answers for all of them, because its bytes cannot be told apart from those of others."""
        return self._free_before[0] - free[0]
