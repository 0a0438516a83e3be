"""A descriptor that shows when a process ends. The keeper then ends the kernels that must not outlive the process."""

from __future__ import annotations

import os

from kernelbox.host.process._process import read_start_time

_ends: dict[int, tuple[int, int]] = {}


def lifeline_to(pid: int, start_time: int) -> int:
    """Returns a descriptor that becomes readable when a process ends, even by SIGKILL; the caller closes it.

    Returns -1 if the process is gone. Raises OSError if too many files are open. On systems without pidfds only this
    process can be watched.
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
    """Returns the read end of a pipe whose write end belongs to this process alone."""
    pid = os.getpid()
    if pid not in _ends:
        for read, write in _ends.values():  # inherited by a fork; left open, it would keep the parent's kernels alive
            os.close(read)
            os.close(write)
        _ends.clear()
        _ends[pid] = os.pipe()
    return _ends[pid][0]
