"""Where a warm template listens, how it takes requests there, and how it leaves that place to the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket

from kernelbox.guest._descriptors import close
from kernelbox.wire._framing import Decoder
from kernelbox.wire._messages import Message

# What can come with a request: what each has, a lifeline, and one for each hierarchy of control groups.
_MOST_DESCRIPTORS = 32


class TemplateListener:
    """Where a warm template listens: the name of its socket, and the directory, which is not known at first in srt."""

    def __init__(self, name: str, directory: int | None = None) -> None:
        self.name = name
        self.directory = directory
        self._inode = 0 if directory is None else _inode(directory, name)

    def see(self, kernel: int) -> None:
        """Finds the directory, if it is not known yet: it is the parent of a kernel's directory."""
        if self.directory is None:
            self.directory = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=kernel)
            self._inode = _inode(self.directory, self.name)

    @property
    def is_ours(self) -> bool:
        """Whether the socket there is ours, not gone and not that of a successor."""
        return self.directory is None or _inode(self.directory, self.name) == self._inode

    def leave(self, listener: socket.socket) -> bool:
        """Removes the socket, under the lock that openers hold, unless an opener is waiting."""
        if self.directory is None:
            return not _is_called(listener)
        lock_name = self.name + ".lock"
        with contextlib.suppress(OSError):
            lock = os.open(lock_name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self.directory)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _inode(self.directory, lock_name) != os.fstat(lock).st_ino or _is_called(listener):
                    return False
                if self.is_ours:
                    os.unlink(self.name, dir_fd=self.directory)
                os.unlink(lock_name, dir_fd=self.directory)
            finally:
                os.close(lock)
            return True
        return not self.is_ours


def take_socket(fd: int) -> socket.socket:
    """Returns the socket that this process was started with. Kernels do not inherit it.

    If it was the standard input, that is /dev/null from now on, and everything else that srt has passed on is closed.
    """
    if fd == 0:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        fd = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def receive(client: socket.socket) -> tuple[Message, list[int]]:
    """Takes a request, and the descriptors that come with it."""
    decoder, fds = Decoder(), list[int]()
    try:
        while True:
            data, received, _, _ = socket.recv_fds(client, 65536, _MOST_DESCRIPTORS)
            fds += received
            for fd in received:
                os.set_inheritable(fd, False)  # a program that a cell starts must not hold the kernel's socket open
            if not data:
                raise ConnectionResetError("the opener went away")
            if messages := decoder.feed(data):
                return messages[0], fds
    except BaseException:
        close(*fds)
        raise


def _is_called(listener: socket.socket) -> bool:
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    return bool(poller.poll(0))


def _inode(directory: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except OSError:
        return 0
