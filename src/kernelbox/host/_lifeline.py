"""A pipe whose write end only this process holds: kernels that must not outlive it watch the other."""

from __future__ import annotations

import os

_ends: dict[int, tuple[int, int]] = {}


def lifeline() -> int:
    """Returns the descriptor to hand to a kernel; it ends when this process does, even by SIGKILL."""
    pid = os.getpid()
    if pid not in _ends:
        for (
            read,
            write,
        ) in _ends.values():  # inherited through a fork: holding it would keep our parent's kernels
            os.close(read)
            os.close(write)
        _ends.clear()
        _ends[pid] = os.pipe()
    return _ends[pid][0]
