"""The queue of clients in front of a Jupyter kernel. The first in it may run a cell.

A request that a Jupyter kernel has queued cannot be withdrawn. So clients queue outside, at a file lock. A cell whose
time is up before its client is first has never run. When a client dies, the lock passes to the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading

from kernelbox.base._unique_objects import Owner
from kernelbox.wire._layout import QUEUE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.host.store._kernel_directory import KernelDirectory


class QueueLock(Owner):
    """One client's position in the queue; its descriptor becomes readable when it is the first, or by `wake`."""

    def __init__(self, directory: KernelDirectory) -> None:
        self._directory = directory
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._lock: _FileLock | None = None
        self._mutex = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        return self._read_end

    @property
    def first(self) -> bool:
        return self._lock is not None and self._lock.held

    def join(self) -> None:
        """Enters the queue; raises OSError if the kernel's directory is gone."""
        if self._lock is None or not self._lock.want_again():
            with self._directory.open() as place:
                self._lock = _FileLock(place.open_for_writing(QUEUE), self.wake)

    def leave(self) -> None:
        """Leaves the queue, so that the next client becomes the first."""
        if self._lock is not None:
            self._lock.drop()

    def wake(self) -> None:
        """Makes the descriptor readable; any thread may call this, even after `close`."""
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
        """Closes the copies of a fork; the position in the queue still belongs to its parent."""
        self._closed = True
        os.close(self._read_end)
        os.close(self._write_end)
        if self._lock is not None:
            self._lock.forget()


class _FileLock(Owner):
    """An exclusive lock on an open file. A thread waits for it, because flock(2) can block but cannot be polled.

    A blocked thread cannot be cancelled. A client that leaves the queue leaves the thread waiting, and uses it again
    when it comes back. So it never has more than one.
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
        """Undoes `drop`; returns whether that was possible, because the thread still waits."""
        with self._mutex:
            assert not self.wanted, "a client is in the queue only once"
            self.wanted = not self._freed
            return self.wanted

    def drop(self) -> None:
        with self._mutex:
            self.wanted = False
            if self.held:
                self._free()  # otherwise the thread does it as soon as it has the lock

    def forget(self) -> None:
        """Closes the descriptor without unlocking. The lock ends when the parent closes the last descriptor."""
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
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # closing is not enough, since a program may have inherited the descriptor
        os.close(self._fd)


def end_queue(directory: KernelDirectory) -> None:
    """Starts a new queue. Clients in the old one wait for a process that is gone."""
    with directory.open() as place:
        place.remove_tree(QUEUE)
