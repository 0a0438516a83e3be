"""Unix sockets of kernels and templates: bound in a private directory, and trusted only if our own user listens."""

from __future__ import annotations

import contextlib
import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# sun_path holds 108 bytes on Linux and 104 on macOS.
_LONGEST_PATH = 100


def dial(path: str) -> socket.socket:
    """Returns a socket that is connected to the one at `path`; raises PermissionError if another user listens there."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(path) as short:
            sock.connect(short)
        _require_own_user(sock, path)
    except OSError:
        sock.close()
        raise
    return sock


def listen(path: str) -> socket.socket:
    """Returns a socket that listens at `path`, in place of one that may be left there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(path) as short:
            sock.bind(short)
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def reachable(path: str) -> Iterator[str]:
    """Gives a path short enough for a socket address: through the directory's descriptor, where it is too long."""
    if len(os.fsencode(path)) <= _LONGEST_PATH or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{os.path.basename(path)}"
    finally:
        os.close(fd)


def _require_own_user(sock: socket.socket, path: str) -> None:
    """Checks who called listen(2) at the other end; where the system does not tell, the directory's mode protects."""
    if not hasattr(socket, "SO_PEERCRED"):
        return
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.geteuid():
        raise PermissionError(f"{path!r} is served by another user (uid {uid}); nothing was sent to it")
