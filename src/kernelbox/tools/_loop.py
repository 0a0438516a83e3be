"""The thread that all sessions with tool servers live in: an event loop of its own, shared by both APIs."""

from __future__ import annotations

import asyncio
import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future
    from typing import Any, TypeVar

    T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner = 0


def submit(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Runs a coroutine in the thread; cancelling the future cancels it."""
    return asyncio.run_coroutine_threadsafe(work, _running_loop())


def _running_loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of this process; a forked child has its own, because the thread stayed behind."""
    global _loop, _owner
    with _lock:
        if _loop is None or _owner != os.getpid():
            _loop, _owner = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="kernelbox-tools", daemon=True).start()
        return _loop
