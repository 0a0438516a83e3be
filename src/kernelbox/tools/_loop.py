"""The thread that all sessions with tool servers live in: an event loop of its own, shared by both APIs."""

from __future__ import annotations

import asyncio
import threading

from kernelbox.host.process._forks import forget_in_forks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future
    from typing import Any, TypeVar

    T = TypeVar("T")


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Runs a coroutine in the thread; cancelling the future cancels it."""
    return asyncio.run_coroutine_threadsafe(work, _thread.loop())


class _Thread:
    """The thread of this process, started when it is first needed. In a fork there is none: it stayed behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inherited: list[object] = []
        forget_in_forks(self)

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="kernelbox-tools", daemon=True).start()
            return self._loop

    def forget(self) -> None:
        """Lets a fork begin anew. The loop is kept: closing it would change what its owner waits for (epoll(7))."""
        self._lock = threading.Lock()
        self._inherited.append(self._loop)
        self._loop = None
        forget_in_forks(self)


_thread = _Thread()
