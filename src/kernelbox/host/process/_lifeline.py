"""A descriptor that shows when a process ends: kernels that must not outlive it are ended by their keeper then."""

from __future__ import annotations

import os

from kernelbox.host.process._process import read_start_time

_ends: dict[int, tuple[int, int]] = {}


def lifeline_to(pid: int, start_time: int) -> int:
    """Returns a descriptor, for the caller to close, that becomes readable when a process ends, even by SIGKILL.

    -1 if that process is gone. Raises OSError if that cannot be found out, because too much is open. Where the system
    has no descriptors of processes, only our own can be watched.
    """
    if not hasattr(os, "pidfd_open"):
        return os.dup(_pipe()) if pid == os.getpid() else -1
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    try:
        if read_start_time(pid) == start_time:
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return -1


def _pipe() -> int:
    """Returns the read end of a pipe whose write end only this process holds."""
    pid = os.getpid()
    if pid not in _ends:
        for read, write in _ends.values():  # inherited through a fork: holding it would keep our parent's kernels
            os.close(read)
            os.close(write)
        _ends.clear()
        _ends[pid] = os.pipe()
    return _ends[pid][0]
