"""A private directory that lasts as long as the process, for kernels that nobody else is to find."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_made: dict[int, str] = {}


def scratch_directory() -> str:
    """Returns the directory of this process, made at first use and removed at exit."""
    pid = os.getpid()
    if pid not in _made:
        _made[pid] = tempfile.mkdtemp(prefix="kernelbox-")
        atexit.register(_remove, pid)
    return os.path.join(_made[pid], "runtime")


def _remove(pid: int) -> None:
    if pid == os.getpid():
        shutil.rmtree(_made.pop(pid, ""), ignore_errors=True)
