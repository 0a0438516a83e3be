"""The descriptors that cells have opened: looked at before a fork, and renewed in the copy behind the same numbers.

After a fork, two processes disturb each other through what they share: the position in a file, the data of a socket,
the events of an epoll. So a copy opens each regular file again, at its position. Everything else becomes a dead end:
reads end there, and writes fail.
"""

from __future__ import annotations

import _socket
import gc
import io
import weakref
from _socket import socket as Socket
from dataclasses import dataclass
from typing import Any

from kernelbox.guest._descriptors import put_behind
from kernelbox.guest._stdlib import contextlib, fcntl, os, select, stat
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# A copy of a process loses what the process had on a GPU, and calls that use it hang.
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel")

_SQLITE = b"SQLite format 3\0"
_OF_SQLITE = ("-wal", "-shm", "-journal")

# The flags of a file that matter only when it is opened. `tempfile` opens with the last two, which stay among the
# flags of the open file: with them /proc/self/fd/N would not be followed.
_ONCE = os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW | getattr(os, "O_TMPFILE", 0)

_STREAM, _DATAGRAM = _socket.SOCK_STREAM, _socket.SOCK_DGRAM
_SO_ACCEPTCONN = 30  # of asm-generic/socket.h

# Writers that were found before an earlier copy: what is frozen for the garbage collector is not found again.
_writers: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class _Opened:
    """A descriptor and what it takes to renew it: the position in a file, or what an epoll watches."""

    fd: int
    identity: tuple[int, int]
    kind: str
    flags: int
    inheritable: bool
    position: int = 0
    watched: tuple[tuple[int, int], ...] = ()


class UserFiles:
    """What cells have open, without the kernel's `own` descriptors; `reasons` says what cannot be copied."""

    def __init__(self, own: set[int]) -> None:
        self.reasons: list[str] = []
        self._opened: list[_Opened] = []
        own_files = _identify_files(own)
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in own:
                with contextlib.suppress(OSError):  # it was the listing's own
                    self._look(int(name), own_files)

    def _look(self, fd: int, own_files: set[tuple[int, int]]) -> None:
        found, target = os.fstat(fd), os.readlink(f"/proc/self/fd/{fd}")
        mode, identity = found.st_mode, (found.st_dev, found.st_ino)
        if identity in own_files:
            return  # mmap has its own descriptor of each file, and closes it itself
        flags, inheritable = fcntl.fcntl(fd, fcntl.F_GETFL), not fcntl.fcntl(fd, fcntl.F_GETFD)
        position, watched = 0, tuple[tuple[int, int], ...]()
        if target.startswith(_GPUS):
            self.reasons.append(f"the GPU device {target} is open; use the GPU in another process")
            return
        if stat.S_ISREG(mode):
            if _is_database(fd, target, flags):
                self.reasons.append(f"the SQLite database {target} is open; close its connections")
                return
            if not _can_be_opened(fd, flags):
                self.reasons.append(f"the file {target} could not be opened again; close it")
                return
            kind, position = "file", os.lseek(fd, 0, os.SEEK_CUR)
        elif stat.S_ISDIR(mode) or stat.S_ISCHR(mode):
            return
        elif stat.S_ISSOCK(mode):
            kind = "socket"
        elif target == "anon_inode:[eventpoll]":
            kind, watched = "epoll", _watched_by(fd)
        elif target == "anon_inode:[eventfd]":
            kind = "eventfd"
        elif target == "anon_inode:[io_uring]":
            self.reasons.append(
                "a library uses io_uring, whose memory two processes cannot share; close what it has open"
            )
            return
        else:
            kind = "other"
        self._opened.append(_Opened(fd, identity, kind, flags, inheritable, position, watched))

    def flush(self) -> None:
        """Flushes what cells have written and Python still buffers, so that only the original writes it."""
        if not any(each.kind == "file" and each.flags & os.O_ACCMODE != os.O_RDONLY for each in self._opened):
            return
        kinds = {kind for base in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom) for kind in _kinds_of(base)}
        _writers.update([each for each in gc.get_objects() if type(each) in kinds])  # millions: isinstance is slow
        for writer in list(_writers):
            with contextlib.suppress(Exception):  # closed, or the disk is full: its owner's flush fails too
                writer.flush()

    def renew(self) -> None:
        """Puts new files behind the numbers of the old; called in the copy."""
        still_open = [each for each in self._opened if _is_still_open(each)]
        for each in still_open:
            try:
                put_behind(each.fd, self._open_again(each), inheritable=each.inheritable)
            except OSError:
                put_behind(each.fd, _dead_end(_STREAM), inheritable=each.inheritable)
        for each in still_open:
            if each.kind == "epoll":
                _fill(each.fd, each.watched)

    def _open_again(self, each: _Opened) -> int:
        match each.kind:
            case "file":
                fd = _open_file(each.fd, each.flags)
                os.lseek(fd, each.position, os.SEEK_SET)
                return fd
            case "epoll":
                return _new_epoll()
            case "eventfd":
                return os.eventfd(0, os.EFD_CLOEXEC | (each.flags & os.O_NONBLOCK))
            case "socket":
                fd = _socket_like(each.fd)
            case _:
                fd = _dead_end(_STREAM)
        os.set_blocking(fd, not each.flags & os.O_NONBLOCK)
        return fd


def _open_file(fd: int, flags: int) -> int:
    """Opens a regular file again, also one that has no name any more."""
    return os.open(f"/proc/self/fd/{fd}", flags & ~_ONCE | os.O_CLOEXEC)


def _can_be_opened(fd: int, flags: int) -> bool:
    """Tells whether `_open_file` would work. To try it and close the file would end this process's locks (fcntl(2))."""
    wanted = {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK, os.O_RDWR: os.R_OK | os.W_OK}[flags & os.O_ACCMODE]
    return os.access(f"/proc/self/fd/{fd}", wanted, effective_ids=True)


def _identify_files(fds: set[int]) -> set[tuple[int, int]]:
    """Returns the devices and inodes of the regular files behind descriptors."""
    found = set()
    for fd in fds:
        with contextlib.suppress(OSError):  # a cell has closed it
            info = os.fstat(fd)
            if stat.S_ISREG(info.st_mode):
                found.add((info.st_dev, info.st_ino))
    return found


def _kinds_of(base: type[Any]) -> list[type[Any]]:
    """Returns a class and all below it."""
    found: list[type[Any]] = [base]
    for kind in found:
        found += kind.__subclasses__()
    return found


def renew_epoll(fd: int, watched: dict[int, int]) -> None:
    """Puts a new epoll behind the number of one that the original still uses."""
    put_behind(fd, _new_epoll())
    _fill(fd, tuple(watched.items()))


def _is_still_open(opened: _Opened) -> bool:
    """Tells whether a descriptor still leads to the same file. Libraries close some of theirs in a fork
    (os.register_at_fork), as matplotlib closes its fonts."""
    try:
        found = os.fstat(opened.fd)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == opened.identity


def _is_database(fd: int, target: str, flags: int) -> bool:
    if target.endswith(_OF_SQLITE):
        return True
    if flags & os.O_ACCMODE == os.O_WRONLY or flags & getattr(os, "O_PATH", 0):
        return False
    return flags & os.O_ACCMODE == os.O_RDWR and os.pread(fd, len(_SQLITE), 0) == _SQLITE


def _watched_by(fd: int) -> tuple[tuple[int, int], ...]:
    """Returns the descriptors that an epoll watches, and the events (proc(5))."""
    found = []
    with open(f"/proc/self/fdinfo/{fd}") as file:
        for line in file:
            if line.startswith("tfd:"):
                fields = line.replace(":", ": ").split()
                found.append((int(fields[1]), int(fields[3], 16)))
    return tuple(found)


def _new_epoll() -> int:
    epoll = select.epoll()
    fd = fcntl.fcntl(epoll.fileno(), fcntl.F_DUPFD_CLOEXEC, 0)
    epoll.close()  # otherwise the object would close this number later
    return fd


def _fill(fd: int, watched: tuple[tuple[int, int], ...]) -> None:
    epoll = select.epoll.fromfd(os.dup(fd))
    for number, events in watched:
        with contextlib.suppress(OSError):  # it has been closed, or cannot be watched any more
            epoll.register(number, events)
    epoll.close()


def _socket_like(fd: int) -> int:
    """Returns a socket that leads nowhere. If the old one listened, this one does too, and no process connects."""
    sock = Socket(fileno=os.dup(fd))
    kind = sock.type
    listens = kind == _STREAM and sock.getsockopt(_socket.SOL_SOCKET, _SO_ACCEPTCONN)
    sock.close()
    if not listens:
        return _dead_end(_DATAGRAM if kind == _DATAGRAM else _STREAM)
    nowhere = Socket(_socket.AF_UNIX, _STREAM)
    nowhere.bind("")  # under a name that the system chooses (unix(7))
    nowhere.listen(0)
    return nowhere.detach()


def _dead_end(kind: int) -> int:
    """Returns a socket whose other end is closed."""
    ours, others = _socket.socketpair(_socket.AF_UNIX, kind)
    others.close()
    return ours.detach()
