"""One client attached to the kernel: its socket, what it has sent in part, and what it has not read yet."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct

from kernelbox.wire._framing import Decoder
from kernelbox.wire._messages import Message


class Peer:
    """Sends frames without blocking; what does not fit waits in the backlog."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.pid = peer_pid(sock)
        self.closed = False
        self.robbed = False  # a cell closed the descriptor
        self._decoder = Decoder()
        self._backlog = bytearray()
        self.congested = False  # the reader is behind: whoever writes waits, so that little is lost if we die

    def __repr__(self) -> str:
        return f"<Peer fd={self.sock.fileno()} backlog={len(self._backlog)}{' closed' if self.closed else ''}>"

    def receive(self) -> list[Message] | None:
        """Returns the messages that have arrived, None at the end of the stream."""
        try:
            data = self.sock.recv(256 * 1024)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._decoder.feed(data) if data else None

    def hold(self, frame: bytes) -> None:
        """Keeps a frame to be sent with the next; the caller holds the outbox's lock."""
        if not self.closed:
            self._backlog += frame

    def send(self, frame: bytes) -> None:
        """Sends as much as the reader takes; the caller holds the outbox's lock."""
        if self.closed:
            return
        self._backlog += frame
        try:
            while self._backlog:
                with memoryview(self._backlog) as view:
                    sent = self.sock.send(view[: 1024 * 1024])
                del self._backlog[:sent]
            self.congested = False
        except BlockingIOError:
            self.congested = True
        except OSError as exc:
            self.robbed = exc.errno == errno.EBADF
            self.abandon()

    @property
    def waiting(self) -> bool:
        return bool(self._backlog)

    def wait_writable(self, timeout: float) -> None:
        poller = select.poll()
        with contextlib.suppress(ValueError):  # the I/O thread has closed it this moment
            poller.register(self.sock, select.POLLOUT)
            poller.poll(timeout * 1000)

    def abandon(self) -> None:
        """Gives the peer up. The I/O thread, which still watches the descriptor, closes it when it wakes."""
        self.closed, self.congested = True, False
        self._backlog.clear()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


def peer_pid(sock: socket.socket) -> int:
    """Returns the process that connected, 0 where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def is_same_user(sock: socket.socket) -> bool:
    """Tells whether whoever connected is our own user, or root."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the directory's mode is the guard where the kernel does not tell who called
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return uid in (os.getuid(), 0)
