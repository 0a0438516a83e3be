"""A private directory that lasts as long as the process, for kernels that nobody else is to find."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from kernelbox.host._process import Process, read_start_time

_PREFIX = "kernelbox-"

_made: dict[int, str] = {}


def scratch_directory() -> str:
    """Returns the directory of this process, made at first use and removed at exit."""
    pid = os.getpid()
    if pid not in _made:
        _sweep()
        _made[pid] = tempfile.mkdtemp(prefix=f"{_PREFIX}{pid}-{read_start_time(pid)}-")
        atexit.register(_remove, pid)
    return os.path.join(_made[pid], "runtime")


def _sweep() -> None:
    """Removes the directories of processes that were killed before they could."""
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        pid, _, rest = name.removeprefix(_PREFIX).partition("-")
        start_time = rest.partition("-")[0]
        ours = name.startswith(_PREFIX) and pid.isdecimal() and start_time.isdecimal()
        path = os.path.join(parent, name)
        if ours and not Process(int(pid), int(start_time)).alive and os.lstat(path).st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)


def _remove(pid: int) -> None:
    if pid == os.getpid():
        shutil.rmtree(_made.pop(pid, ""), ignore_errors=True)
