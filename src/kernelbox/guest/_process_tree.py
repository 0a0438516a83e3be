"""The processes below this one, by what /proc says, and what a process can ask for its family (prctl(2))."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

from kernelbox.guest._stdlib import contextlib, os, signal, time
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# The clock that the system counts the starts of processes by.
SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Looked up once, in the template.
_prctl: Any = getattr(ctypes.PyDLL(None), "prctl", None)


def children(pid: int | str = "self", *, thread: int | None = None) -> list[int]:
    """Returns the direct children of a process, or of one of its threads; those that have ended are among them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task") if thread is None else (thread,):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def kill_descendants(of: int | str = "self") -> None:
    """Kills the descendants of a process, which is this one or a child of it."""
    signal_all(descendants(of), signal.SIGKILL)


def descendants(pid: int | str) -> Iterator[int]:
    """Yields the processes below a process."""
    waiting = children(pid)
    while waiting:  # however deep they are
        child = waiting.pop()
        yield child
        waiting += children(child)


def begun_since(since: float, older: set[int], of: int | str = "self") -> list[int]:
    """Returns the descendants of a process that began at a time since boot or later.

    The system counts in hundredths of a second, so `older` are children that are known to have begun before. What is
    below them is theirs.
    """
    ticks = int(since * os.sysconf("SC_CLK_TCK"))
    young = [pid for child in children(of) if child not in older for pid in (child, *descendants(child))]
    return [pid for pid in young if start_time(pid) >= ticks]


def signal_all(pids: Iterable[int], number: int, *, group: int = 0) -> None:
    """Sends a signal to processes, or only to those of them that are in a process group."""
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or become another user's
            if not group or os.getpgid(pid) == group:
                os.kill(pid, number)


def is_below_us(pid: int) -> bool:
    """Tells whether a process is this one or a descendant of it. One that is gone might have been: True."""
    while pid not in (0, 1, os.getpid()):
        parent = _parent(pid)
        if parent is None:
            return True
        pid = parent
    return pid == os.getpid()


def start_time(pid: int) -> int:
    """Returns when a process began, in ticks since boot (proc(5)); 0 if it is gone."""
    try:
        return int(_read_stat(pid)[19])
    except OSError:
        if os.path.isdir("/proc/self"):
            return 0
        from kernelbox.usage._processes import ask_start_time

        return ask_start_time(pid) or 0


def session_of(pid: int) -> int:
    """Returns the session of a process; 0 if it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def has_lost_main_thread(pid: int) -> bool:
    """Tells whether the main thread of a process has ended while others live, by exit(2) or a system call filter."""
    try:
        fields = _read_stat(pid)
    except OSError:
        return False
    return fields[0] == b"Z" and int(fields[17]) > 1


def become_subreaper() -> None:
    """Makes orphans below this process its children, where the system can do that."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Makes the system kill this process when its parent ends; ends it now if the parent is gone."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _parent(pid: int) -> int | None:
    try:
        return int(_read_stat(pid)[1])
    except (OSError, IndexError):
        return None


def _read_stat(pid: int) -> list[bytes]:
    """Returns the fields of /proc/pid/stat (proc(5)) after the name, from the state on.

    A keeper asks this of every kernel each second. A file object would take twice as long.
    """
    fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        return os.read(fd, 4096).rpartition(b")")[2].split()
    finally:
        os.close(fd)
