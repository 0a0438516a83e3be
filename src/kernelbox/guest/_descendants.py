"""The processes below this one, by what /proc says; none where there is no /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator


def children(pid: int | str = "self") -> list[int]:
    """Returns the direct children of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def kill_descendants(of: int | str = "self") -> None:
    """Kills everything below a process, which is this one or a child of it."""
    for pid in list(_walk(of)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _walk(pid: int | str) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _walk(child)
