"""A transport that sends the head of an answer together with what follows it: one system call, one packet."""

from __future__ import annotations

import asyncio
from typing import Any

_END_OF_HEAD = b"\r\n\r\n"


class JoinedWrites:
    """Holds a head back until more is written, or until the event loop comes round; all else is the transport's."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self.is_closing = transport.is_closing  # asked several times for each request
        self._head = b""
        self._handle: asyncio.Handle | None = None

    def __repr__(self) -> str:
        return f"<JoinedWrites of {self._transport!r}>"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data = self._take() + data
        elif data.endswith(_END_OF_HEAD):
            self._head = data
            self._handle = self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._take())

    def _take(self) -> bytes:
        head, self._head = self._head, b""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        return head
