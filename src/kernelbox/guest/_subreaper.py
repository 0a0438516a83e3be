"""What a process asks of the system about its family (prctl(2)): to get its orphans, and to end with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Looked up once, in the template.
_prctl: Any = getattr(ctypes.PyDLL(None), "prctl", None)


def become_subreaper() -> None:
    """Makes orphans below this process its children, where the system can do that."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Has this process killed when its parent ends, and ends it now if that has happened."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
