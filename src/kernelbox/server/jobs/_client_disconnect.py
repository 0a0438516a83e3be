"""Interrupts a cell when the client that waits for its result disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from kernelbox.server.http._failures import RequestRefused

T = TypeVar("T")

# Seconds. Most cells end sooner, so they do not need a second task that watches the connection.
_SHORT = 0.05


async def run_attended(receive: Receive, running: Coroutine[Any, Any, T]) -> T:
    """Returns what this returns, and cancels it if the client disconnects first; then raises RequestRefused."""
    attention = _Attention(receive)
    try:
        return await running
    except asyncio.CancelledError:
        if not attention.take_cancellation():
            raise
    finally:
        attention.end()
    raise RequestRefused(499, "client_gone", "the client has gone; the cell was interrupted")


class _Attention:
    """Watches a connection, and cancels the task that waits for the answer when the client disconnects."""

    def __init__(self, receive: Receive) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._receive = receive
        self._waiting = task
        self._looking: asyncio.Task[None] | None = None
        self._gone = False
        self._timer = loop.call_later(_SHORT, self._begin)

    def take_cancellation(self) -> bool:
        """Returns whether this object, and nothing else, cancelled the task."""
        return self._gone and self._waiting.uncancel() == 0

    def end(self) -> None:
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def _begin(self) -> None:
        self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._waiting.cancel()
