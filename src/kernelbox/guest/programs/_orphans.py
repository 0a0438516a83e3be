"""The kernel's children: those whose exit status cells may still ask for, and orphans that no code here knows.

A kernel is a child subreaper, so what `os.system("server &")` leaves running becomes its child when the shell ends. The
system does not tell such an orphan from a child that a cell started, so every function of Python's that starts a
process notes its number here. A child of the main thread (orphans are given to no other) that was not noted is an
orphan, and is reaped when it has ended. Exit statuses of the others are left for their cells to ask for, however late.

C code that forks by itself is not seen. It usually waits at once; its child is taken for an orphan only if it has been
a zombie for a while.
"""

from __future__ import annotations

import _posixsubprocess
import os as user_os
import posix as user_posix
import subprocess
from collections.abc import Callable
from typing import Any

from kernelbox.guest._process_tree import children
from kernelbox.guest._stdlib import contextlib, os
from kernelbox.guest.walls import _guard_hooks
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# C code that waits for a child that it forked has done so by then.
_PATIENCE = 0.25

# More numbers of children are looked through for those that have been reaped.
_MANY = 100

# The most descriptors for watching the end of orphans; other orphans are checked from time to time.
_MOST_WATCHED = 32

_HAS_WAITID = hasattr(os, "waitid")  # macOS has it from Python 3.13 on

_started: set[int] = set()
_on_start: list[Callable[[], None]] = []
_runner, _listing = 0, -1


def note(pid: int) -> int:
    """Notes a child that Python code has started; returns its number."""
    if pid > 0:
        if len(_started) > _MANY:
            _started.difference_update([old for old in list(_started) if not _is_child(old)])
        _started.add(pid)
        note_start()
    return pid


def note_start() -> None:
    """Takes note that a program has been started, here or by the runner."""
    for call in _on_start:
        call()


def watch_starts(on_start: Callable[[], None]) -> None:
    """Makes the functions that start processes note them; called in a kernel before any user code."""
    _on_start.append(on_start)
    for name in ("fork", "posix_spawn", "posix_spawnp"):
        if (original := getattr(user_os, name, None)) is not None:
            replacement = _noting(original)
            setattr(user_os, name, replacement)
            setattr(user_posix, name, replacement)
    user_os.forkpty = user_posix.forkpty = _noting_forkpty(user_os.forkpty)
    user_os.system = user_posix.system = _noting_system(user_os.system)
    fork_exec = _noting(_guard_hooks.fork_exec)
    _posixsubprocess.fork_exec = subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]  # typeshed has neither


def _noting(original: Callable[..., int]) -> Callable[..., int]:
    def start(*args: Any, **kwargs: Any) -> int:
        return note(original(*args, **kwargs))

    start.__name__ = start.__qualname__ = original.__name__
    start.__doc__ = original.__doc__
    _guard_hooks.in_between.add(start.__code__)
    return start


def _noting_forkpty(original: Callable[[], tuple[int, int]]) -> Callable[[], tuple[int, int]]:
    def forkpty() -> tuple[int, int]:
        pid, fd = original()
        return note(pid), fd

    forkpty.__doc__ = original.__doc__
    _guard_hooks.in_between.add(forkpty.__code__)
    return forkpty


def _noting_system(original: Any) -> Any:
    def system(command: Any) -> int:
        note_start()  # C code starts the program, and waits for it
        status: int = original(command)
        return status

    system.__doc__ = original.__doc__
    _guard_hooks.in_between.add(system.__code__)
    return system


class Orphans:
    """Watches the orphans and reaps those that have ended; used by the thread that serves."""

    def __init__(self) -> None:
        self._main = os.getpid()  # also the number of the main thread
        self.pidfds: dict[int, int] = {}  # by a descriptor that becomes readable when it has ended
        self.ended: dict[int, float] = {}  # when `reap` wants to be called for each

    def look(self, now: float) -> None:
        """Finds orphans that are new, and those that have ended."""
        if not has_children():
            return
        watched = set(self.pidfds.values())
        for pid in children(thread=self._main):
            if pid in _started or pid in watched or pid in self.ended:
                continue
            if _has_ended(pid):
                self.ended[pid] = now + _PATIENCE
            elif len(self.pidfds) < _MOST_WATCHED and hasattr(os, "pidfd_open"):
                with contextlib.suppress(OSError):
                    self.pidfds[os.pidfd_open(pid)] = pid

    def tell(self, descriptor: int, now: float) -> None:
        """Takes note that one of `pidfds` has become readable."""
        pid = self.pidfds.pop(descriptor)
        with contextlib.suppress(OSError):  # a cell may have closed it
            os.close(descriptor)
        self.ended[pid] = now + _PATIENCE

    def reap(self, now: float) -> None:
        """Reaps what has ended long enough ago."""
        for pid in [pid for pid, due in self.ended.items() if due <= now]:
            del self.ended[pid]
            if pid not in _started:
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def forget_started() -> None:
    """Forgets the children, in a copy of the process: they are the original's."""
    _started.clear()


def expect_runner(pid: int) -> None:
    """Leaves the runner of a guarded kernel, which is always there, out of the children."""
    global _runner, _listing
    _runner, _listing = note(pid), os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)


def has_children() -> bool:
    """Tells whether this process has children, ended or not; False where the system has no waitid(2) to tell."""
    return _HAS_WAITID and _look_at(os.P_ALL, 0)[0] and not (_runner and _has_none_but_runner())


def _has_none_but_runner() -> bool:
    """Reads it from a file that is kept open: to list all children would take longer than a short cell."""
    try:
        return _started == {_runner} and os.pread(_listing, 32, 0).split() == [b"%d" % _runner]
    except OSError:  # a cell has closed it
        return False


def _has_ended(pid: int) -> bool:
    return _look_at(os.P_PID, pid)[1]


def _is_child(pid: int) -> bool:
    return _HAS_WAITID and _look_at(os.P_PID, pid)[0]


def _look_at(kind: int, pid: int) -> tuple[bool, bool]:
    """Tells whether there is such a child, and whether it has ended; takes no exit status."""
    try:
        return True, os.waitid(kind, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False, False
