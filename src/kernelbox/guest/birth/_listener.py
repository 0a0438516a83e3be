"""Where a warm template listens, and how it leaves that place to the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
from dataclasses import dataclass
from typing import Self


@dataclass(slots=True)
class TemplateListener:
    """Where a warm template listens: the directory that its socket is in, and the socket's name and inode there."""

    directory: int
    name: str
    inode: int

    @classmethod
    def take(cls, directory: int, name: str) -> Self:
        """Takes the seat that the socket with this name is."""
        return cls(directory, name, _inode(directory, name))

    @classmethod
    def unseen(cls, name: str) -> Self:
        """Takes a seat whose directory is not known yet."""
        return cls(-1, name, 0)

    def see(self, kernel: int) -> None:
        """Gets to know the directory, which that of a kernel lies in, if it is not known."""
        if self.directory < 0:
            self.directory = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=kernel)
            self.inode = _inode(self.directory, self.name)

    @property
    def is_ours(self) -> bool:
        """Whether the socket there is ours, not gone and not that of a successor."""
        return self.directory < 0 or _inode(self.directory, self.name) == self.inode

    def leave(self, listener: socket.socket) -> bool:
        """Takes the socket away, under the lock that openers hold; not if one of them waits at it."""
        if self.directory < 0:
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


def _is_called(listener: socket.socket) -> bool:
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    return bool(poller.poll(0))


def _inode(directory: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except OSError:
        return 0
