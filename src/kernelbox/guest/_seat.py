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
class Seat:
    """Where a warm template listens: the directory that its socket is in, and the socket's name and inode there."""

    directory: int
    name: str
    inode: int

    @classmethod
    def take(cls, directory: int, name: str) -> Self:
        """Takes the seat that the socket with this name is."""
        return cls(directory, name, _inode(directory, name))

    @property
    def is_ours(self) -> bool:
        """Whether the socket there is ours, not gone and not that of a successor."""
        return _inode(self.directory, self.name) == self.inode

    def leave(self, listener: socket.socket) -> bool:
        """Takes the socket away, under the lock that openers hold; not if one of them waits at it."""
        lock_name = self.name + ".lock"
        with contextlib.suppress(OSError):
            lock = os.open(lock_name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self.directory)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                poller = select.poll()
                poller.register(listener, select.POLLIN)
                if _inode(self.directory, lock_name) != os.fstat(lock).st_ino or poller.poll(0):
                    return False
                if self.is_ours:
                    os.unlink(self.name, dir_fd=self.directory)
                os.unlink(lock_name, dir_fd=self.directory)
            finally:
                os.close(lock)
            return True
        return not self.is_ours


def _inode(directory: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    except OSError:
        return 0
