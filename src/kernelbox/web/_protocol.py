"""HTTP/1.1 and WebSockets as uvicorn speaks them, for clients that send without end, take for ever, or have gone.

It also lets what has been found out about a connection be known to the requests that follow: of one over a Unix socket
from its beginning whether the user made it, since only who holds the socket can ask the system that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from kernelbox.web._joined_writes import JoinedWrites

# Where a request carries what is known of its connection: the same for all that come over it. `is_own` tells whether a
# process of the user who runs this one made it, or one of the superuser's.
CONNECTION = "kernelbox.connection"

# Seconds in which the head of a request must have come.
HEAD_TIMEOUT = 20.0

# Bytes of the request line and all headers; browsers and proxies send a tenth.
MOST_HEAD = 64 * 1024

# Seconds between pings on a WebSocket, and for which one may stay unanswered while nothing is read.
PING_INTERVAL = 20.0
PING_TIMEOUT = 40.0


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose next request has no whole head in time, or too large a one."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._known = _find_out(transport)
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", JoinedWrites(transport, self.loop))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_timer is not None:
            self._head_size += len(data)
            if self._head_size > MOST_HEAD and not self._holds_whole_head(data):
                self._stop_timer()
                self.send_400_response("The head of the request is too large.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        if self._head_timer is None:
            self._expect_head()
        super().on_message_begin()
        self.scope[CONNECTION] = self._known  # type: ignore[literal-required]  # a key of ours

    def on_headers_complete(self) -> None:
        self._stop_timer()
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > MOST_HEAD:
            self.send_400_response("The head of the request is too large.")
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    @staticmethod
    def _holds_whole_head(data: bytes) -> bool:
        """Tells whether the end of a head is in a piece of data; what follows it is the body, and has other limits."""
        return b"\r\n\r\n" in data

    def _expect_head(self) -> None:
        self._head_size = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self, *_: Any) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Ends a connection from which nothing is read. uvicorn would wait until what it has written has been."""

    _has_moved = False

    async def run_asgi(self) -> None:
        self.scope[CONNECTION] = _find_out(self.transport)  # type: ignore[literal-required]  # a key of ours
        await super().run_asgi()

    def resume_writing(self) -> None:
        self._has_moved = True
        super().resume_writing()

    def keepalive_timeout(self) -> None:
        if self._has_moved:  # it is slow, and our ping waits behind what it has to read
            self._has_moved = False
            self.pong_timer = self.loop.call_later(self.ping_timeout or PING_TIMEOUT, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.transport.abort()


def _find_out(transport: asyncio.Transport) -> dict[str, bool]:
    """Returns what the system tells of a connection over a Unix socket; of any other nothing."""
    used = transport.get_extra_info("socket")
    if used is None or used.family != socket.AF_UNIX:
        return {}
    if not hasattr(socket, "SO_PEERCRED"):
        return {"is_own": True}  # by the mode of the socket, which no other account can connect to
    with socket.socket(fileno=os.dup(used.fileno())) as again:  # other event loops have no whole socket here
        said = again.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", said)
    return {"is_own": uid in (0, os.geteuid())}
