"""Unix sockets of kernels and templates, in a private directory. They are trusted only if the same user listens."""

from __future__ import annotations

import _socket
import errno
import os
import stat
import struct
import time
from _thread import allocate_lock

from kernelbox.base._errors import StoreFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from socket import socket as Socket

    from kernelbox.host.files._place import Place
else:

    class Socket(_socket.socket):
        """A socket without the class around it whose module takes longer to import than a cell takes to run."""

        __slots__ = ()

        def __enter__(self) -> Socket:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()


# pid, uid and gid, in the format of SO_PEERCRED and SCM_CREDENTIALS.
_CREDENTIALS = struct.Struct("3i")

# A kernel accepts connections within milliseconds, during cells too. One that is starting takes less than this.
_QUEUE_PATIENCE = 5.0


# Held while this process's limit of open files is raised.
_raising = allocate_lock()


def dial(place: Place, name: str) -> Socket:
    """Connects to a socket in a directory; raises StoreFailed if another user listens there."""
    if not stat.S_ISSOCK(place.stat(name).st_mode):
        raise StoreFailed(f"{place.path_of(name)!r} is not a socket, and is not used")  # a link would lead elsewhere
    sock = Socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        _connect(sock, place.reach(name), place.path_of(name))
        _require_own_user(sock, place.path_of(name))
    except OSError:
        sock.close()
        raise
    return sock


def _connect(sock: Socket, address: str, path: str) -> None:
    """Connects, but does not wait forever for a process whose queue is full."""
    deadline = time.monotonic() + _QUEUE_PATIENCE
    sock.setblocking(False)
    while True:
        try:
            sock.connect(address)
            break
        except BlockingIOError:  # EAGAIN: unix(7) has no way to wait for room in the queue
            if time.monotonic() > deadline:
                raise StoreFailed(
                    f"the process behind {path!r} accepts no connections: it is stopped, or has too many of them"
                ) from None
            time.sleep(0.01)
    sock.setblocking(True)


def send_descriptors(sock: socket.socket, data: bytes, descriptors: list[int]) -> int:
    """Sends data with descriptors; returns how many bytes were sent.

    Descriptors on their way count for the user, and a cell can have many of them. The system refuses more than our
    limit of open files, so that is raised for this moment. Cells in a sandbox can have fewer than it may be raised to.
    """
    import socket  # only where kernels are started

    try:
        return socket.send_fds(sock, [data], descriptors)
    except OSError as exc:
        if exc.errno != errno.ETOOMANYREFS:
            raise
    import resource  # not everywhere, and hardly ever needed

    with _raising:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
        try:
            return socket.send_fds(sock, [data], descriptors)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def listen(place: Place, name: str, *, tell_senders: bool = False) -> socket.socket:
    """Returns a socket that listens in a directory, and replaces any file of its name.

    With `tell_senders` the system says which process sent the data that arrives (SO_PASSCRED, unix(7)).
    """
    import socket  # only where kernels are started

    if place.exists(name):
        place.remove_tree(name)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(place.reach(name))
        if tell_senders and hasattr(socket, "SO_PASSCRED"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


def receive_from(sock: socket.socket) -> tuple[bytes, int]:
    """Returns the data that has arrived, and the pid of its sender; 0 if the system was not asked to tell."""
    data, ancillary, _, _ = sock.recvmsg(65536, _socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, value in ancillary:
        if level == _socket.SOL_SOCKET and kind == getattr(_socket, "SCM_CREDENTIALS", -1):
            return data, int(_CREDENTIALS.unpack(value[: _CREDENTIALS.size])[0])
    return data, 0


def peer_of(sock: socket.socket) -> tuple[int, int] | None:
    """Returns the pid and the user at the other end; None if the system does not tell."""
    if not hasattr(_socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def _require_own_user(sock: socket.socket, path: str) -> None:
    """Checks who called listen(2) at the other end. If the system does not tell, the directory's mode protects."""
    peer = peer_of(sock)
    if peer is not None and peer[1] != os.geteuid():
        raise StoreFailed(f"{path!r} is served by another user (uid {peer[1]}); nothing was sent to it")
