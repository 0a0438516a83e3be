"""What becomes of a cell when the client that waits for its result goes away: it is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import Request

from kernelbox.server._errors import Refused
from kernelbox.wire._results import ExecutionResult

# Seconds. Most cells end sooner, and are not worth a second task that looks for the end of the connection.
_SHORT = 0.05


async def run_attended(request: Request, running: Coroutine[Any, Any, ExecutionResult]) -> ExecutionResult:
    """Returns the result of what runs, and cancels it if the client disconnects first."""
    task = asyncio.ensure_future(running)
    try:
        await asyncio.wait({task}, timeout=_SHORT)
        if not task.done():
            gone = asyncio.ensure_future(_until_gone(request))
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise Refused(499, "client_gone", "the client has gone; the cell was interrupted")


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
