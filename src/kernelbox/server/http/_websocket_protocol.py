"""uvicorn's WebSockets, with limits for clients that do not read, or send without end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.server import ServerProtocol

from kernelbox.server.http._protocol import CONNECTION, JoinedWrites, failure_body, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent
    from websockets.frames import Frame
    from websockets.http11 import Response
    from websockets.typing import StatusLike

# Seconds between pings, and for which one may stay unanswered while nothing is read.
PING_INTERVAL = 20.0
PING_TIMEOUT = 40.0

# What a WebSocket is closed with where a message is too big (RFC 6455, 7.4.1).
_TOO_BIG = 1009

# Frames of one message. How many bytes they have is limited too, but they may be empty.
_MOST_FRAMES = 10_000

# Bytes, or characters, of one frame that we send: a millisecond of work.
_LARGEST_FRAME = 256 * 1024


class _Handshakes(ServerProtocol):
    """Rejects a wrong handshake with the same shape of answer as all errors."""

    def reject(self, status: StatusLike, text: str) -> Response:
        response = super().reject(status, text)
        body = failure_body(text.strip() or "There is nothing for a WebSocket here.")
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body)))):
            del response.headers[name]
            response.headers[name] = value
        return replace(response, body=body)


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Ends a connection from which nothing is read. uvicorn would wait until what it has written has been.

    It also answers no pings to a client that does not read the answers, takes no message of endless frames, and sends a
    long message as several frames, between which other connections are served.
    """

    _has_moved = False
    _owes_pongs = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _Handshakes(max_size=self.config.ws_max_size, logger=self.conn.logger)

    async def run_asgi(self) -> None:
        transport: object = self.transport
        if isinstance(transport, JoinedWrites):  # of the request that asked for the WebSocket; else nobody is the user
            self.scope[CONNECTION] = transport.made_by_user  # type: ignore[literal-required]  # a key of ours
        await super().run_asgi()

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "websocket.send":
            if self.conn.expect_continuation_frame:
                raise ClientDisconnected  # the task that sent a long message was cancelled: nothing can follow
            data = message.get("bytes") or message.get("text") or b""
            if len(data) > _LARGEST_FRAME:
                await self._send_in_frames(data)
                return
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # by a refusal; uvicorn would write to the log that there was none

    async def _send_in_frames(self, data: str | bytes) -> None:
        for start in range(0, len(data), _LARGEST_FRAME):
            await self.writable.wait()
            await asyncio.sleep(0)
            part, is_last = data[start : start + _LARGEST_FRAME], start + _LARGEST_FRAME >= len(data)
            raw = part.encode() if isinstance(part, str) else part
            try:
                if start:
                    self.conn.send_continuation(raw, is_last)
                elif isinstance(part, str):
                    self.conn.send_text(raw, is_last)
                else:
                    self.conn.send_binary(raw, is_last)
            except InvalidState as exc:
                raise ClientDisconnected from exc
            self.transport.write(b"".join(self.conn.data_to_send()))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated and not self.transport.is_closing():
            refuse(self.transport, "The head of the request is not that of a WebSocket, or is too large.")

    def resume_writing(self) -> None:
        self._has_moved = True
        super().resume_writing()
        if self._owes_pongs:
            self._owes_pongs = False
            if not self.read_paused:
                self.transport.resume_reading()

    def handle_ping(self) -> None:
        super().handle_ping()
        if not self.writable.is_set():
            self._owes_pongs = True
            self.transport.pause_reading()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < _MOST_FRAMES:
            super().handle_cont(event)
        else:
            self.conn.fail(_TOO_BIG, "the message has too many frames")
            self.handle_parser_exception()

    def keepalive_timeout(self) -> None:
        if self._has_moved:  # it is slow, and our ping waits behind what it has to read
            self._has_moved = False
            self.pong_timer = self.loop.call_later(self.ping_timeout or PING_TIMEOUT, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.transport.abort()
