"""Child subreapers (prctl(2)): orphans below such a process become its children, not init's."""

from __future__ import annotations

import contextlib
import ctypes

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Makes orphans below this process its children, where the system can do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
