"""A lock with a name in a directory, between threads and processes, that leaves no file behind.

A cell can lock the same file. So the host that holds a lock signs its file, and says which process it is; who finds a
lock held without that waits for a moment, in case the holder is about to sign, and puts another file in its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from kernelbox.base._errors import StoreFailed
from kernelbox.host.process._process import Process, read_start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.host.files._place import Place

# A lock is held while a kernel is started or ended; twice the longest start-up allowed means that something is wrong.
PATIENCE = 120.0

# A host signs a lock within microseconds of taking it; on a busy machine it may be kept from it for longer.
_SIGNING_PATIENCE = 1.0

# Two numbers and a signature.
_LONGEST_CLAIM = 200

# Keeps these signatures apart from others with the same key.
_PURPOSE = b"kernelbox lock"


@contextlib.contextmanager
def locked(place: Place, name: str, secret: bytes, patience: float = PATIENCE) -> Iterator[None]:
    """Holds a lock file, signed with a secret of hosts; the last holder removes it, also one that a crash has left."""
    fd = _acquire(place, name, secret, patience)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            place.remove(name)
        os.close(fd)


def is_locked(place: Place, name: str) -> bool:
    """Tells whether a process holds the lock now; one that is just giving it up holds it."""
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
    """Removes the lock files of a directory that no process holds: the last to hold each was killed."""
    for name in place.listdir():
        with contextlib.suppress(OSError), locked(place, name, secret, patience=0.0):
            pass


def _acquire(place: Place, name: str, secret: bytes, patience: float) -> int:
    deadline, pause, path = time.monotonic() + patience, 0.0005, place.path_of(name)
    signed_at = time.monotonic()
    while True:
        try:
            fd = place.open_for_writing(name)
        except (FileNotFoundError, StoreFailed):
            raise  # without its directory there is no lock: the caller knows how to make it
        except OSError as exc:
            raise StoreFailed.because(exc, path) from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _claim(fd, secret)
            if _is_at(fd, place, name):
                return fd
            os.close(fd)  # the last holder removed the file while we opened it, and the next makes another
            continue
        except BlockingIOError:
            if _is_claimed(fd, secret):
                signed_at = time.monotonic()
            elif time.monotonic() - signed_at > _SIGNING_PATIENCE and _is_at(fd, place, name):
                with contextlib.suppress(FileNotFoundError):  # another process has been quicker
                    place.remove(name)
            os.close(fd)
        except OSError as exc:  # a file system without locks
            os.close(fd)
            raise StoreFailed.because(exc, path, "lock") from exc
        if time.monotonic() > deadline:
            raise StoreFailed(
                f"gave up waiting for the lock {path!r} after {patience:g} s; `lsof` shows the process that holds it"
            )
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def _claim(fd: int, secret: bytes) -> None:
    """Says in a lock file which process holds it, and signs that."""
    pid = os.getpid()
    if pid not in _start_times:
        _start_times.clear()
        _start_times[pid] = read_start_time(pid) or 0
    owner = b"%d %d" % (pid, _start_times[pid])
    with contextlib.suppress(OSError):  # a full disk, on which kernels can still be destroyed
        os.pwrite(fd, owner + b" " + _sign(fd, owner, secret) + b"\n", 0)


_start_times: dict[int, int] = {}  # of this process; a fork finds its parent's


def _is_claimed(fd: int, secret: bytes) -> bool:
    """Tells whether a lock file is signed by a host, and that host lives."""
    claim, _, _ = os.pread(fd, _LONGEST_CLAIM, 0).partition(b"\n")
    owner, _, signature = claim.rpartition(b" ")
    if signature != _sign(fd, owner, secret):
        return False
    pid, start_time = map(int, owner.split())
    return Process(pid, start_time).alive


def _sign(fd: int, owner: bytes, secret: bytes) -> bytes:
    from _blake2 import blake2b  # hashlib has the same, and takes 5 ms to import, because it loads OpenSSL

    facts = b"%d %b" % (os.fstat(fd).st_ino, owner)
    return blake2b(facts, key=secret, digest_size=32, person=_PURPOSE).hexdigest().encode()


def _is_at(fd: int, place: Place, name: str) -> bool:
    try:
        there = place.stat(name)
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
