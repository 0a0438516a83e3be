"""A connection as an event loop uses it: awaited, and written to without blocking."""

from __future__ import annotations

import asyncio
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from typing import Any, TypeVar

    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.host.engines._interface import Connection
    from kernelbox.wire._messages import Message

    T = TypeVar("T")


# Seconds. The end of a process ends its connections, unless a child of it has them too: for that alone its end is
# watched, and most cells are over sooner, also when a server has as many of them as it can.
_SHORT = 0.1

# Threads of a server. One that waits costs some kilobytes.
_MOST_THREADS = 128


class LoopConnection:
    """Wakes the task that awaits it when there is something to read or the kernel has ended."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._fd = connection.fileno()
        self._death_fd = connection.death_fileno()
        self._waiter: asyncio.Future[None] | None = None
        self._attached = True
        self._dead = False
        self._woken = False
        self._sending = False
        self._later = self._loop.call_later(_SHORT, self._watch_death) if self.watched else None

    @property
    def watched(self) -> bool:
        """Whether the end of the kernel's process ends a wait."""
        return self._death_fd >= 0

    async def wait(self) -> None:
        """Waits until there is something to read, the kernel has ended, or `wake` is called."""
        if not self._attached or self._dead or self._woken:
            self._woken = False
            return
        self._waiter = self._loop.create_future()
        self._loop.add_reader(self._fd, self.wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._attached:
                self._loop.remove_reader(self._fd)

    def wake(self) -> None:
        """Ends the wait; if there is none now, the next one."""
        if self._waiter is None:
            self._woken = True
        elif not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def unsent(self) -> bool:
        """Whether the kernel has not taken all that was sent."""
        return self.connection.unsent

    def send(self, message: Message) -> None:
        """Sends a message; what the kernel does not take at once follows when it does."""
        self.connection.send(message)
        if self.unsent and self._attached:
            self._sending = True
            self._loop.add_writer(self._fd, self._send_rest)

    def detach(self) -> None:
        """Takes the connection off the event loop."""
        if self._attached:
            self._attached = False
            if self._waiter is not None:
                self._loop.remove_reader(self._fd)
            if self._sending:
                self._loop.remove_writer(self._fd)
            if self._later is not None:
                self._later.cancel()
            elif self.watched:
                self._loop.remove_reader(self._death_fd)
            self.wake()

    def close(self) -> None:
        self.detach()
        self.connection.close()

    def _send_rest(self) -> None:
        self.connection.flush()
        if not self.unsent:
            self._sending = False
            self._loop.remove_writer(self._fd)

    def _watch_death(self) -> None:
        self._later = None
        self._loop.add_reader(self._death_fd, self._on_death)

    def _on_death(self) -> None:
        self._dead = True
        self._loop.remove_reader(self._death_fd)
        self.wake()


async def connect(kernel: KernelHandle) -> Connection:
    """Returns a connection; a new one is made in a thread, because a kernel that takes no calls would block."""
    if (pooled := kernel.take_pooled()) is not None:
        return pooled
    return await in_thread(kernel.connect, undo=kernel.release)


def allow_threads() -> None:
    """Lets this event loop have many threads wait at once; Python's own number is a few more than there are processors.

    Threads wait for processes that may be stopped or slow to start; reading a file must not wait behind them.
    """
    from concurrent.futures import ThreadPoolExecutor

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MOST_THREADS))


async def in_thread(
    function: Callable[..., T], *args: Any, undo: Callable[[T], object] | None = None, pool: Executor | None = None
) -> T:
    """Runs a blocking function in a thread, of a pool if one is given, to its end.

    A caller that is cancelled meanwhile does not wait for it; what the function made is then passed to `undo`,
    in the same thread.
    """
    lock, abandoned = threading.Lock(), False
    made: list[T] = []

    def work() -> T:
        value = function(*args)
        with lock:
            made.append(value)
            orphaned = abandoned
        if orphaned and undo is not None:
            undo(value)
        return value

    try:
        return await (asyncio.to_thread(work) if pool is None else asyncio.wrap_future(pool.submit(work)))
    except asyncio.CancelledError:
        with lock:
            abandoned, was_made = True, bool(made)
        if was_made and undo is not None:
            asyncio.get_running_loop().run_in_executor(None, undo, made[0])
        raise
