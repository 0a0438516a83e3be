"""Requests of front ends that are served one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from kernelbox.server.jupyter._channel_options import FrontEnd
from kernelbox.server.jupyter._front_end_message import JupyterMessage


class RequestLine:
    """Serves requests in a task that lasts as long as there are any."""

    def __init__(self, most: int, serve: Callable[[FrontEnd, JupyterMessage], Awaitable[None]]) -> None:
        """`most` requests may wait; `serve` answers one."""
        self.most = most
        self.waiting: deque[tuple[FrontEnd, JupyterMessage]] = deque()
        self.worker: asyncio.Task[None] | None = None
        self._serve = serve

    def __repr__(self) -> str:
        return f"<RequestLine {len(self.waiting)} waiting>"

    def add(self, front_end: FrontEnd, request: JupyterMessage) -> bool:
        """Takes a request, unless too many wait; returns whether it did."""
        if len(self.waiting) >= self.most:
            return False
        self.waiting.append((front_end, request))
        if self.worker is None:
            self.worker = asyncio.get_running_loop().create_task(self._work())
        return True

    async def _work(self) -> None:
        try:
            while self.waiting:
                await self._serve(*self.waiting.popleft())
                await asyncio.sleep(0)  # thousands may wait of which none takes any time, and others are served too
        finally:
            self.worker = None
