"""A lock with a name in a directory, between threads and processes, that leaves no file behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from kernelbox.base._errors import StoreFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.host._place import Place

# A lock is held while a kernel is started or ended; twice the longest start-up allowed means that something is wrong.
PATIENCE = 120.0


@contextlib.contextmanager
def locked(place: Place, name: str, patience: float = PATIENCE) -> Iterator[None]:
    """Holds a lock file; the last holder removes it, also one that a crash has left."""
    fd = _acquire(place, name, patience)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
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
        return _is_at(fd, place, name)
    finally:
        os.close(fd)
    return False


def remove_left_behind(place: Place) -> None:
    """Removes the lock files of a directory that no process holds: the last to hold each was killed."""
    for name in place.listdir():
        with contextlib.suppress(OSError), locked(place, name, patience=0.0):
            pass


def _acquire(place: Place, name: str, patience: float) -> int:
    deadline, pause, path = time.monotonic() + patience, 0.0005, place.path_of(name)
    while True:
        try:
            fd = place.open_for_writing(name)
        except (FileNotFoundError, StoreFailed):
            raise  # without its directory there is no lock: the caller knows how to make it
        except OSError as exc:
            raise StoreFailed.because(exc, path) from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(fd, place, name):
                return fd
            os.close(fd)  # the last holder removed the file while we opened it, and the next makes another
            continue
        except BlockingIOError:
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


def _is_at(fd: int, place: Place, name: str) -> bool:
    try:
        there = place.stat(name)
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
