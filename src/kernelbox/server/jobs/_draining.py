"""How running cells end when a server stops: within a grace period, or at once after a second signal."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from kernelbox.shells._asyncio_cell import AsyncCell

# How many cells ended by themselves when a server stopped, and how many were interrupted.
Drained = tuple[int, int]


async def drain(cells: Collection[AsyncCell], grace: float, *, hurry: asyncio.Event) -> Drained:
    """Returns when all cells have ended. After `grace` seconds, or when `hurry` is set, they are interrupted."""
    ending = [asyncio.ensure_future(cell.until_ended()) for cell in cells]
    await wait_for_end(ending, grace, hurry)
    interrupted = [cell for cell in cells if not cell.ended]
    await asyncio.gather(*(cell.stop() for cell in interrupted))
    await asyncio.gather(*ending)
    return len(cells) - len(interrupted), len(interrupted)


async def wait_for_end(ending: Collection[asyncio.Future[Any]], grace: float, hurry: asyncio.Event) -> None:
    """Waits until all have ended, the seconds of grace have passed, or `hurry` is set."""
    if not ending:
        return
    hurried = asyncio.ensure_future(hurry.wait())
    all_done = asyncio.ensure_future(asyncio.wait(ending))
    await asyncio.wait({hurried, all_done}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    all_done.cancel()
