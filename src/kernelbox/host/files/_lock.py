"""A named lock in a directory, for threads and processes, that leaves no file behind.

A cell can lock the same file. So the host that holds a lock signs its file and names its process there. If a lock is
held without a signature, others wait a moment, in case the holder is about to sign, and then replace the file.
"""

from __future__ import annotations

import fcntl
import os
import time

from kernelbox.base._errors import StoreFailed
from kernelbox.base._light_stdlib import contextmanager, suppress
from kernelbox.host.files._key import sign
from kernelbox.host.process._process import Process, read_start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.host.files._place import Place

# A lock is held while a kernel starts or ends. This is twice the longest start allowed.
PATIENCE = 120.0

# A host signs a lock within microseconds, but a busy machine may delay it.
_SIGNING_PATIENCE = 1.0

# Two numbers and a signature.
_LONGEST_CLAIM = 200


@contextmanager
def locked(place: Place, name: str, secret: bytes, patience: float = PATIENCE) -> Iterator[None]:
    """Holds a lock, and removes its file at the end, even one that a crash left behind."""
    fd = _acquire(place, name, secret, patience)
    try:
        yield
    finally:
        with suppress(OSError):
            place.remove(name)
        os.close(fd)


def is_locked(place: Place, name: str) -> bool:
    """Tells whether a process holds the lock now."""
    try:
        fd = place.open_for_reading(name)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def remove_left_behind(place: Place, secret: bytes) -> None:
    """Removes lock files that no process holds; their last holder was killed."""
    for name in place.listdir():
        with suppress(OSError), locked(place, name, secret, patience=0.0):
            pass


def _acquire(place: Place, name: str, secret: bytes, patience: float) -> int:
    deadline, pause, path = time.monotonic() + patience, 0.0005, place.path_of(name)
    signed_at = time.monotonic()
    while True:
        try:
            fd = place.open_for_writing(name)
        except (FileNotFoundError, StoreFailed):
            raise  # the caller makes the missing directory
        except OSError as exc:
            raise StoreFailed.because(exc, place.path) from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _claim(fd, secret)
            if _is_at(fd, place, name):
                return fd
            os.close(fd)  # the last holder has just removed this file
            continue
        except BlockingIOError:
            if _is_claimed(fd, secret):
                signed_at = time.monotonic()
            elif time.monotonic() - signed_at > _SIGNING_PATIENCE and _is_at(fd, place, name):
                with suppress(FileNotFoundError):  # another process was faster
                    place.remove(name)
            os.close(fd)
        except OSError as exc:  # a file system without locks
            os.close(fd)
            raise StoreFailed.because(exc, place.path, "lock files in") from exc
        if time.monotonic() > deadline:
            raise StoreFailed(
                f"gave up waiting for the lock {path!r} after {patience:g} s; `lsof` shows the process that holds it"
            )
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def _claim(fd: int, secret: bytes) -> None:
    """Writes into a lock file which process holds it, signed."""
    pid = os.getpid()
    if pid not in _start_times:
        _start_times.clear()
        _start_times[pid] = read_start_time(pid) or 0
    owner = b"%d %d" % (pid, _start_times[pid])
    with suppress(OSError):  # on a full disk kernels can still be destroyed
        os.pwrite(fd, owner + b" " + _sign(fd, owner, secret) + b"\n", 0)


_start_times: dict[int, int] = {}  # of this process by its pid, because a fork inherits it


def _is_claimed(fd: int, secret: bytes) -> bool:
    """Tells whether a lock file is signed by a host that is alive."""
    claim, _, _ = os.pread(fd, _LONGEST_CLAIM, 0).partition(b"\n")
    owner, _, signature = claim.rpartition(b" ")
    if signature != _sign(fd, owner, secret):
        return False
    pid, start_time = map(int, owner.split())
    return Process(pid, start_time).alive


def _sign(fd: int, owner: bytes, secret: bytes) -> bytes:
    return sign(b"%d %b" % (os.fstat(fd).st_ino, owner), secret, b"kernelbox lock").encode()


def _is_at(fd: int, place: Place, name: str) -> bool:
    try:
        return os.path.samestat(place.stat(name), os.fstat(fd))
    except FileNotFoundError:
        return False
