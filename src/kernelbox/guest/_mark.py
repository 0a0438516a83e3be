"""The mark of a process that runs guarded cells, which the operating system shows to every kernel that it calls.

A guarded cell must not have its code run by another kernel. The path by which it connects proves nothing: another
thread can change what the path leads to, after the guard has looked at it. So a kernel whose guards are raised maps a
file with a name of its own into its memory. Its forks have this mark too. An approved command has not: execve(2) takes
it away.
"""

from __future__ import annotations

import errno
import mmap
from _socket import SOL_SOCKET
from _socket import socket as Socket

from kernelbox.guest._pristine import os, select
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

_NAME = "kernelbox-guarded"
_SHOWN = f"/memfd:{_NAME} ".encode()  # proc_pid_maps(5) adds that it is deleted

# What stands in the command line of templates, and so of all processes that were forked from one: the memory of others
# need not be looked at, which may take a millisecond. The system shows it in the first few kilobytes.
_FORKED = b"kernelbox.guest._template"
_BEGINNING = 8192

# Linux 6.5; not in Python's socket module.
_SO_PEERPIDFD = 77

_CAN_MARK = hasattr(os, "memfd_create") and os.path.exists("/proc/self/maps")

_mark: memoryview | None = None


def mark() -> None:
    """Marks this process and its forks for the rest of their lives, where the system has a way to."""
    global _mark
    if _CAN_MARK and _mark is None:
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        os.ftruncate(fd, mmap.PAGESIZE)
        _mark = memoryview(mmap.mmap(fd, mmap.PAGESIZE))  # a map that is in use cannot be closed
        os.close(fd)


def may_be_guarded(sock: Socket, pid: int) -> bool:
    """Tells whether the process that connected is marked; one that is gone, or keeps its memory secret, may be."""
    if not _CAN_MARK or pid == 0:
        return False
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read(_BEGINNING)
        if not line:
            return True
        if _FORKED in line:
            with open(f"/proc/{pid}/maps", "rb") as file:
                if _SHOWN in file.read():
                    return True
        return _has_ended(sock)  # what was read may have been a later process's with the same pid
    except OSError:
        return True


def _has_ended(sock: Socket) -> bool:
    """Tells whether the process that connected has ended; not so where the system does not say."""
    try:
        pidfd = Socket.getsockopt(sock, SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as exc:
        return exc.errno not in (errno.ENOPROTOOPT, errno.EINVAL)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(0))
    finally:
        os.close(pidfd)
