"""The queue of clients in front of a Jupyter kernel: the first in it may run a cell.

A request that a Jupyter kernel has queued cannot be withdrawn from it. So clients queue outside, at a file lock: a cell
whose time is up before its client came first has truly never run, and when a client dies the lock passes on by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading

from kernelbox.wire._layout import QUEUE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.host.store._kernel_directory import KernelDirectory


class QueueLock:
    """One client's place in the queue; its descriptor becomes readable when that is the first, or by `wake`."""

    def __init__(self, directory: KernelDirectory) -> None:
        self._directory = directory
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._lock: _FileLock | None = None
        self._mutex = threading.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<QueueLock {'first' if self.first else 'waiting' if self._lock and self._lock.wanted else 'free'}>"

    def fileno(self) -> int:
        return self._read_end

    @property
    def first(self) -> bool:
        """Whether every other client has to wait."""
        return self._lock is not None and self._lock.held

    def join(self) -> None:
        """Takes a place in the queue; raises OSError if the kernel's directory is gone."""
        if self._lock is None or not self._lock.want_again():
            self._lock = _FileLock(_open_lock_file(self._directory), self.wake)

    def leave(self) -> None:
        """Leaves the queue, or lets the next client be the first."""
        if self._lock is not None:
            self._lock.drop()

    def wake(self) -> None:
        """Makes the descriptor readable; from any thread, and of no effect once closed."""
        with self._mutex, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.write(self._write_end, b"\0")

    def clear(self) -> None:
        """Makes the descriptor unreadable until the next `wake`."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_end, 4096)

    def close(self) -> None:
        self.leave()
        with self._mutex:
            if not self._closed:
                self._closed = True
                os.close(self._read_end)
                os.close(self._write_end)

    def forget(self) -> None:
        """Closes what a fork has inherited; the place in the queue is its parent's still."""
        self._closed = True
        os.close(self._read_end)
        os.close(self._write_end)
        if self._lock is not None:
            self._lock.forget()


class _FileLock:
    """An exclusive lock on an open file, waited for in a thread: flock(2) can be had at once or slept for, not polled.

    A sleeping thread cannot be called back. A client that leaves the queue leaves it asleep and, when it comes again,
    has it wait on, so that it never has more than one.
    """

    def __init__(self, fd: int, on_held: Callable[[], None]) -> None:
        self.wanted = True
        self.held = False
        self._fd = fd
        self._on_held = on_held
        self._freed = False
        self._mutex = threading.Lock()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.held = True
        except BlockingIOError:
            threading.Thread(target=self._wait, name="kernelbox-queue", daemon=True).start()

    def want_again(self) -> bool:
        """Takes back that the lock was dropped; returns whether it could, because the thread still waits."""
        with self._mutex:
            assert not self.wanted, "a client has one place in the queue"
            self.wanted = not self._freed
            return self.wanted

    def drop(self) -> None:
        with self._mutex:
            self.wanted = False
            if self.held:
                self._free()  # else the thread does, as soon as it has the lock

    def forget(self) -> None:
        """Closes the descriptor without unlocking: a lock ends when its last descriptor is closed, our parent's."""
        if not self._freed:
            self._freed = True
            os.close(self._fd)

    def _wait(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._mutex:
            if self.wanted:
                self.held = True
                self._on_held()
            else:
                self._free()

    def _free(self) -> None:
        self.held, self._freed = False, True
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # a program may have inherited the descriptor: closing is not enough
        os.close(self._fd)


def end_queue(directory: KernelDirectory) -> None:
    """Makes the next client the first of a new queue; those in the old one wait for a process that is gone."""
    with directory.open() as place:
        place.remove_tree(QUEUE)


def _open_lock_file(directory: KernelDirectory) -> int:
    with directory.open() as place:
        return place.open_for_writing(QUEUE)
