"""A lock on a path, between threads and processes, that leaves no file behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from kernelbox.base._errors import StoreFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Whoever holds a lock starts or ends a kernel; twice the longest start-up allowed means that something is wrong.
PATIENCE = 120.0


@contextlib.contextmanager
def locked(path: str, patience: float = PATIENCE) -> Iterator[None]:
    """Holds the lock file at `path`; the file is removed by the last to leave, and by whoever comes after a crash."""
    fd = _acquire(path, patience)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(fd)


def is_locked(path: str) -> bool:
    """Tells whether somebody holds the lock at `path` now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _is_at(fd, path)
    finally:
        os.close(fd)
    return False


def _acquire(path: str, patience: float) -> int:
    deadline, pause = time.monotonic() + patience, 0.0005
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise  # the directory: the caller knows how to make it
        except OSError as exc:
            raise StoreFailed.because(exc, path) from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(fd, path):
                return fd
            os.close(fd)  # the last holder removed the file while we opened it: it is nobody's lock now
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


def _is_at(fd: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
