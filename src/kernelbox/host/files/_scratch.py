"""A private directory that lasts as long as the process, for kernels that other processes must not find."""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import tempfile

from kernelbox.base._errors import StoreFailed
from kernelbox.host.files._place import Place
from kernelbox.host.process._process import Process, read_start_time

_PREFIX = "kernelbox-"

_made: dict[int, str] = {}

# No other process uses these directories, so the secret need not outlive this one.
_SECRET = os.urandom(32)


class Scratch:
    """The directory of this process, made at first use and removed at exit."""

    def __init__(self) -> None:
        pid = os.getpid()
        if pid not in _made:
            _sweep()
            _made[pid] = tempfile.mkdtemp(prefix=f"{_PREFIX}{pid}-{read_start_time(pid)}-")
            atexit.register(_remove, pid)
        self.path = _made[pid]

    def secret(self) -> bytes:
        return _SECRET

    def open(self) -> Place:
        return Place.open(self.path, setting="TMPDIR")

    def make(self) -> Place:
        """Opens the directory, and makes it again if something has cleaned up the temporary files."""
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
        except OSError as exc:
            raise StoreFailed.because(exc, self.path) from exc
        return self.open()


def _sweep() -> None:
    """Removes the directories of processes that were killed before they could do it."""
    with Place.open_any(tempfile.gettempdir()) as parent:
        for name in parent.listdir():
            pid, _, rest = name.removeprefix(_PREFIX).partition("-")
            start_time = rest.partition("-")[0]
            if not (name.startswith(_PREFIX) and pid.isdecimal() and start_time.isdecimal()):
                continue
            with contextlib.suppress(OSError, ValueError):  # it is gone, or its number is far too long
                info = parent.stat(name)
                ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
                if ours and not Process(int(pid), int(start_time)).alive:
                    parent.remove_tree(name)


def _remove(pid: int) -> None:
    if pid == os.getpid():
        parent, name = os.path.split(_made.pop(pid))
        with contextlib.suppress(OSError), Place.open_any(parent) as place:
            place.remove_tree(name)
