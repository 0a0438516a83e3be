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
    waiting, is_gone = asyncio.current_task(), False
    looking: asyncio.Task[None] | None = None
    assert waiting is not None

    def begin() -> None:
        nonlocal looking
        looking = asyncio.ensure_future(look())

    async def look() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        waiting.cancel()

    timer = asyncio.get_running_loop().call_later(_SHORT, begin)
    try:
        return await running
    except asyncio.CancelledError:
        if not is_gone or waiting.uncancel():  # something else has cancelled the task too
            raise
    finally:
        timer.cancel()
        if looking is not None:
            looking.cancel()
    raise RequestRefused(499, "client_gone", "the client has gone; the cell was interrupted")
