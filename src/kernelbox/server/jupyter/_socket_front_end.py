"""A front end behind a WebSocket, with a bounded queue of what it has not read yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

from kernelbox.server.jupyter._front_end_message import BadMessage, JupyterMessage
from kernelbox.server.jupyter._websocket_codec import CodecV1, PlainCodec

# Bytes that wait for a front end that reads slowly. With more, the cell that writes them waits too.
_MOST_UNREAD = 16 * 1024 * 1024

# With this much, nothing is read from it either: this must be replies. While it waits for a cell's output, it is still
# read.
_MOST_REPLIES = 2 * _MOST_UNREAD

# Seconds that a front end may read nothing while something waits for it: it is gone, and others wait for it.
PATIENCE = 60.0

# Seconds to send the close frame; a client that does not read gets none.
_CLOSE_PATIENCE = 5.0

# The codes for closing a WebSocket (RFC 6455, 7.4.1): another one replaced it; it sent something that is not a message;
# it reads nothing.
_REPLACED = 1000
_BAD_DATA = 1007
_NOT_READ = 1008


class SocketFrontEnd:
    """Sends and receives over one WebSocket."""

    def __init__(self, websocket: WebSocket, codec: CodecV1 | PlainCodec, *, patience: float = PATIENCE) -> None:
        self._websocket = websocket
        self._codec = codec
        self._patience = patience
        self._unread: deque[tuple[JupyterMessage, str | bytes]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._end: tuple[int, str] | None = None
        self.closed = False

    @property
    def unread(self) -> list[JupyterMessage]:
        """What has not been sent."""
        return [message for message, _ in self._unread]

    async def send(self, message: JupyterMessage) -> None:
        """Sends a message, and waits while the front end is far behind; one that has gone is sent nothing."""
        if self.closed:
            return
        frame = self._codec.encode(message)
        self._unread.append((message, frame))
        self._size += len(frame)
        self._news.set()
        await self._until_room(_MOST_UNREAD)

    def replace(self) -> None:
        """Closes the connection: its front end has another."""
        self._finish(_REPLACED, "replaced")

    async def serve(self, take: Callable[[JupyterMessage], None]) -> None:
        """Receives from the front end, and sends what waits for it, until either side closes."""
        reading, writing = asyncio.ensure_future(self._read(take)), asyncio.ensure_future(self._write())
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.closed = True
            self._room.set()
            for task in (reading, writing):
                task.cancel()
            await asyncio.wait({reading, writing})
        for task in (reading, writing):
            if not task.cancelled():
                task.result()
        if self._end is not None:
            with contextlib.suppress(TimeoutError, RuntimeError):  # it reads nothing, or has gone by itself
                async with asyncio.timeout(_CLOSE_PATIENCE):
                    await self._websocket.close(*self._end)

    def _finish(self, code: int, reason: str) -> None:
        self._end = (code, reason)
        self.closed = True
        self._news.set()
        self._room.set()

    async def _read(self, take: Callable[[JupyterMessage], None]) -> None:
        while True:
            await self._until_room(_MOST_REPLIES)  # a client that does not read replies is not read from
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return
            frame = event.get("text")
            try:
                take(self._codec.decode(event["bytes"] if frame is None else frame))
            except BadMessage as exc:
                self._finish(_BAD_DATA, str(exc)[:100])
                return
            await asyncio.sleep(0)  # thousands of messages may have come at once, and others are served too

    async def _until_room(self, most: int) -> None:
        while self._size > most and not self.closed:
            self._room.clear()
            await self._room.wait()

    async def _write(self) -> None:
        """Sends what waits, as fast as the front end reads."""
        while not self.closed:
            await self._news.wait()
            self._news.clear()
            while self._unread and not self.closed:
                try:
                    async with asyncio.timeout(self._patience):
                        await self._send_frame(self._unread[0][1])
                except TimeoutError:
                    self._finish(_NOT_READ, "nothing is read")
                    return
                except (WebSocketDisconnect, ConnectionError, RuntimeError):
                    return  # it has gone
                self._size -= len(self._unread.popleft()[1])
                self._room.set()

    async def _send_frame(self, frame: str | bytes) -> None:
        if isinstance(frame, str):
            await self._websocket.send_text(frame)
        else:
            await self._websocket.send_bytes(frame)
