"""The clients attached to the kernel: their sockets, what each has sent in part, and what it has not read yet.

The operating system names the sender with every piece of data (SCM_CREDENTIALS, unix(7)). That is needed because a cell
can put a socket of its own in the place of the client's, and answer the client's questions there.
"""

from __future__ import annotations

import errno
import socket
import struct
from _socket import socket as Socket

from kernelbox.guest._process_tree import is_below_us
from kernelbox.guest._stdlib import contextlib, os, select, time
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import Decoder
from kernelbox.wire._messages import Message

keep_builtins(globals())

# pid, uid and gid, as SO_PEERCRED and SCM_CREDENTIALS give them.
_CREDENTIALS = struct.Struct("3i")
_unpack = _CREDENTIALS.unpack

# malloc(3) maps what is larger than 128 kB into memory, and unmaps it, each time.
_RECEIVE = 64 * 1024

# A cell can replace the methods of socket.socket, not these.
_recvmsg, _send, _getsockopt = Socket.recvmsg, Socket.send, Socket.getsockopt

# Not all of them are known to every system.
_SOL_SOCKET = socket.SOL_SOCKET
_SO_PEERCRED: int = getattr(socket, "SO_PEERCRED", 0)
_SCM_CREDENTIALS: int = getattr(socket, "SCM_CREDENTIALS", 0)
_TELLS_SENDERS = hasattr(socket, "SO_PASSCRED") and _SCM_CREDENTIALS != 0
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) if _TELLS_SENDERS else 0

# Bytes that wait for a watcher. With more, what is written waits too, so that little is lost to one that is slow.
_FAR_BEHIND = 8 * 1024 * 1024

# Seconds after which a watcher that is still so far behind is dropped: cells of other clients must not wait for it.
_PATIENCE = 5.0


class Peer:
    """Sends frames without blocking; what does not fit waits in the backlog."""

    def __init__(self, sock: Socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.pid = peer_credentials(sock)[0]  # 0 for a process of another namespace
        self.refusal = self._find_refusal()
        self.closed = False
        self.broken_by_cell = False  # a cell closed the descriptor, or put another in its place
        self._identity = _socket_identity(sock)
        self._key: str | None = None
        self._decoder = Decoder()
        self.backlog = bytearray()  # what the reader has not taken
        self.congested = False  # the reader is behind: writers wait, so that little is lost if we die

    def __repr__(self) -> str:
        return f"<Peer fd={self.sock.fileno()} backlog={len(self.backlog)}{' closed' if self.closed else ''}>"

    def _find_refusal(self) -> str:
        """Returns why this client may run nothing; "" if it may."""
        if self.pid != 0 and is_below_us(self.pid):
            return "a cell, and what it starts, cannot use its own kernel; use another one"
        return ""

    def receive(self) -> list[Message] | None:
        """Returns the messages that have arrived, None at the end of the stream."""
        try:
            data, ancillary, _, _ = _recvmsg(self.sock, _RECEIVE, _ANCILLARY)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        if _TELLS_SENDERS and (sender := _sender(ancillary)) != self.pid:
            self.broken_by_cell = sender is None or is_below_us(sender)
            return None
        return self._decoder.feed(data)

    @property
    def is_itself(self) -> bool:
        """Whether the descriptor still leads to the client: a cell can put another socket in its place."""
        try:
            return _socket_identity(self.sock) == self._identity
        except OSError:
            return False

    def is_known_by(self, key: str) -> bool:
        """Tells whether a request has the key that came with the first: the superuser's cells can forge credentials."""
        if self._key is None:
            self._key = key
        return key == self._key

    def hold(self, frame: bytes) -> None:
        """Keeps a frame to be sent with the next; the caller holds the outbox's lock."""
        if not self.closed:
            self.backlog += frame

    def send(self, frame: bytes) -> None:
        """Sends as much as the reader takes; the caller holds the outbox's lock."""
        if self.closed:
            return
        self.backlog += frame
        try:
            while self.backlog:
                with memoryview(self.backlog) as view:
                    sent = _send(self.sock, view[: 1024 * 1024])
                del self.backlog[:sent]
            self.congested = False
        except BlockingIOError:
            self.congested = True
        except OSError as exc:
            self.broken_by_cell = exc.errno == errno.EBADF
            self.abandon()

    def wait_writable(self, timeout: float) -> None:
        poller = select.poll()
        with contextlib.suppress(ValueError):  # the I/O thread has closed it this moment
            poller.register(self.sock, select.POLLOUT)
            poller.poll(timeout * 1000)

    def abandon(self) -> None:
        """Drops the peer. The I/O thread, which still watches the descriptor, closes it when it wakes."""
        self.closed, self.congested = True, False
        self.backlog.clear()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class Watchers(dict[Peer, float]):
    """The clients that watch, and since when each is far behind: 0 for one that is not.

    The caller holds the outbox's lock.
    """

    def tell(self, frame: bytes, *, but: Peer | None = None) -> None:
        """Sends a frame to all but the client whose cell it is about."""
        for peer in self:
            if peer is not but:
                peer.send(frame)

    def far_behind(self, *, but: Peer | None = None) -> list[Peer]:
        """Returns the watchers that writers must wait for; drops one that has been behind for too long."""
        found, now = [], time.monotonic()
        for peer, since in self.items():
            if peer is but or len(peer.backlog) <= _FAR_BEHIND:
                if since:
                    self[peer] = 0.0
            elif not since:
                self[peer] = now
                found.append(peer)
            elif now - since < _PATIENCE:
                found.append(peer)
            else:
                peer.abandon()
        return found


def _socket_identity(sock: Socket) -> tuple[int, int]:
    info = os.fstat(sock.fileno())
    return info.st_dev, info.st_ino


def is_same_user(sock: Socket) -> bool:
    """Tells whether the process that connected belongs to our own user. Root is another user."""
    return peer_credentials(sock)[1] == os.getuid()


def peer_credentials(sock: Socket) -> tuple[int, int]:
    """Returns the pid and uid of the process that connected; 0 and our own uid where the system does not tell."""
    if not _SO_PEERCRED:
        return 0, os.getuid()
    pid, uid, _ = _unpack(_getsockopt(sock, _SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if (level, kind) == (_SOL_SOCKET, _SCM_CREDENTIALS) and len(data) == _CREDENTIALS.size:
            pid: int = _unpack(data)[0]
            return pid
    return None
