"""The processes below this one, by what /proc says; none where there is no /proc."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kernelbox.guest._pristine import os, signal
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())


def children(pid: int | str = "self") -> list[int]:
    """Returns the direct children of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def kill_descendants(of: int | str = "self", *, since: float = 0.0, spare: int = 0) -> None:
    """Kills what is below a process, which is this one or a child of it, and began at a time since boot or later.

    The system counts in hundredths of a second; `spare` is a process that is known to be older.
    """
    ticks = int(since * os.sysconf("SC_CLK_TCK"))
    for pid in list(_walk(of)):
        with contextlib.suppress(ProcessLookupError):
            if pid != spare and start_time(pid) >= ticks:
                os.kill(pid, signal.SIGKILL)


def is_below_us(pid: int) -> bool:
    """Tells whether a process is this one or started by it, at whatever remove; one that is gone might have been."""
    while pid not in (0, 1, os.getpid()):
        parent = _parent(pid)
        if parent is None:
            return True
        pid = parent
    return pid == os.getpid()


def start_time(pid: int) -> int:
    """Returns when a process began, in ticks since boot (proc(5)); 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return None


def _walk(pid: int | str) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _walk(child)
