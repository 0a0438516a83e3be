"""Child subreapers (prctl(2)): orphans below such a process become its children, not init's."""

from __future__ import annotations

import ctypes
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36

# Looked up once, in the template.
_prctl: Any = getattr(ctypes.PyDLL(None), "prctl", None)


def become_subreaper() -> None:
    """Makes orphans below this process its children, where the system can do that."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
