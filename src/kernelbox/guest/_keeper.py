"""The parent of kernels: it learns how each one dies, writes it down, and ends what a dead kernel leaves behind.

Kernels and their parent are child subreapers (prctl(2)): while a kernel lives its orphans are its own; when it dies
they become children of its parent, which knows that they belong to nobody any more.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
from dataclasses import dataclass

from kernelbox.guest._descendants import children

_PR_SET_CHILD_SUBREAPER = 36

# Text that a dying kernel left in its pipes, such as the last words of a C library; more is of no use.
_LAST_WORDS = 64 * 1024

DEATH = "death.json"


@dataclass(slots=True)
class Kept:
    """A kernel that this process is the parent of."""

    directory: str
    pipes: tuple[int, int]
    lifeline: int


class Keeper:
    """Keeps kernels: knows their pids, reaps them, leaves a note of how each one ended."""

    def __init__(self) -> None:
        self.kernels: dict[int, Kept] = {}
        self._oom_kills = _count_oom_kills()
        become_subreaper()

    def __repr__(self) -> str:
        return f"<Keeper of {len(self.kernels)} kernels>"

    def reap(self) -> None:
        """Takes note of every child that has ended; a kernel stays a zombie until its note is written."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid in self.kernels:
                exited = ended.si_code == os.CLD_EXITED
                self._bury(ended.si_pid, ended.si_status if exited else -ended.si_status)
            os.waitpid(ended.si_pid, 0)

    def check(self) -> None:
        """Ends kernels whose directory has vanished: nobody can reach them any more."""
        self._oom_kills = _count_oom_kills()
        for pid, kept in self.kernels.items():
            if not os.path.isdir(kept.directory):
                _kill(pid)

    def cut(self, lifeline: int) -> None:
        """Ends the kernel whose owner has gone."""
        for pid, kept in self.kernels.items():
            if kept.lifeline == lifeline:
                _kill(pid)

    def _bury(self, pid: int, code: int) -> None:
        kept = self.kernels.pop(pid)
        oom_kills = _count_oom_kills()
        note: dict[str, object] = {
            "pid": pid,
            "signal": -code if code < 0 else None,
            "exit_status": code if code >= 0 else None,
            "out_of_memory": code == -signal.SIGKILL and oom_kills > self._oom_kills,
            "at": time.time(),
            "last_words": [_read_rest(pipe) for pipe in kept.pipes],
        }
        self._oom_kills = oom_kills
        self._end_orphans(pid)
        for fd in (*kept.pipes, kept.lifeline):
            if fd >= 0:
                os.close(fd)
        _write_note(os.path.join(kept.directory, DEATH), note)

    def _end_orphans(self, dead: int) -> None:
        """Kills what a dead kernel left: any child of ours that is not a kernel."""
        while orphans := [pid for pid in children() if pid != dead and pid not in self.kernels]:
            for pid in orphans:
                _kill(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)  # it was sent SIGKILL; its own children are ours now, and next


def become_subreaper() -> None:
    """Makes orphans below this process its children, where the system can do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # a child of ours that has not been waited for: the pid is still its own


def _count_oom_kills() -> int:
    try:
        with open("/proc/vmstat") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except OSError:
        return 0


def _read_rest(pipe: int) -> str:
    if pipe < 0:
        return ""
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    data = b""
    while len(data) < _LAST_WORDS and any(event & select.POLLIN for _, event in poller.poll(0)):
        piece = os.read(pipe, _LAST_WORDS)
        if not piece:
            break
        data += piece
    return data.decode("utf-8", "backslashreplace")


def _write_note(path: str, note: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the directory may be gone already: then nobody wants to know
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w") as file:
            json.dump(note, file)
        os.rename(path + ".new", path)
