"""An event loop in a thread of its own, for work that goes on while the caller's thread does something else."""

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


class LoopThread:
    """One thread with an event loop, started when it is first needed. A fork has none and starts its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inherited: list[object] = []
        forget_in_forks(self)

    def __repr__(self) -> str:
        return f"<LoopThread {self._name} {'not started' if self._loop is None else 'running'}>"

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop())

    def loop(self) -> asyncio.AbstractEventLoop:
        """Returns the loop; it is running."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True).start()
            return self._loop

    def forget(self) -> None:
        """Makes a fork start its own loop. Closing the old one would change its owner's epoll set (epoll(7))."""
        self._lock = threading.Lock()
        self._inherited.append(self._loop)
        self._loop = None
        forget_in_forks(self)
