"""uvicorn's HTTP/1.1, with limits for clients that send without end, are too slow, or have gone.

It also finds out once, when a connection is accepted, whether the user made it, and has all its requests know that.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from kernelbox.server.http._connection_owner import made_by_user

# Where a request carries whether the user made its connection (`made_by_user`): the same for all that come over it.
CONNECTION = "kernelbox.connection"

# Where a request that has come whole before it is looked at carries the size of its body.
BODY_SIZE = "kernelbox.body_size"

# Seconds in which the head of a request must have come, and what is left of a body once its request is answered.
HEAD_TIMEOUT = 20.0

# Bytes of the request line and all headers, and of what is neither head nor body: trailers, extensions of chunks.
# Browsers and proxies send a tenth.
MOST_HEAD = 64 * 1024

# Requests that wait on one connection for those before them; each takes some kilobytes.
_MOST_WAITING = 100

_END_OF_HEAD = b"\r\n\r\n"

_TOO_LARGE = "The head of the request is too large."


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose next request has no whole head in time, or too large a one."""

    _head_timer: asyncio.TimerHandle | None = None
    _rest_timer: asyncio.TimerHandle | None = None
    _head_size = 0
    _extra_size = 0
    _receiving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        joined = JoinedWrites(transport, self.loop)
        self._made_by_user = joined.made_by_user
        self.transport = cast("asyncio.Transport", joined)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_timer is not None:
            self._head_size += len(data)
            if self._head_size > MOST_HEAD and _END_OF_HEAD not in data:  # the body behind it has other limits
                self.send_400_response(_TOO_LARGE)
                return
        elif self._receiving:
            self._extra_size += len(data)  # until a part of a body is found in it
        super().data_received(data)
        if self._receiving and self._extra_size > MOST_HEAD:
            self.send_400_response("The request has too much data that is neither head nor body.")
        self._keep_waiting()

    def on_message_begin(self) -> None:
        if self._head_timer is None:
            self._expect_head()
        super().on_message_begin()
        self.scope[CONNECTION] = self._made_by_user  # type: ignore[literal-required]  # a key of ours

    def on_headers_complete(self) -> None:
        self._stop_timers()
        self._receiving, self._extra_size = True, 0
        if self.transport.is_closing():
            return
        if (
            sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url) > MOST_HEAD
        ):  # with ": " and line end
            self.send_400_response(_TOO_LARGE)
        elif len(self.pipeline) >= _MOST_WAITING:
            self.send_400_response("Too many requests wait on this connection.")
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._extra_size = 0
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving = False
        self._stop_timers()
        if not self.transport.is_closing():
            super().on_message_complete()
            cycle: RequestResponseCycle | None = self.cycle  # None for a WebSocket
            if cycle is not None and not cycle.more_body:
                self.scope[BODY_SIZE] = len(cycle.body)  # type: ignore[literal-required]  # a key of ours

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._receiving and not self.transport.is_closing():  # the rest is thrown away, for a limited time
            self._rest_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def send_400_response(self, msg: str) -> None:
        """Says what is wrong, in the shape of all failures, unless an answer is on its way; closes the connection."""
        self._stop_timers()
        if self._is_answering():
            self.transport.close()
        else:
            refuse(self.transport, msg)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever uvicorn says
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def _has_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete

    def _expect_head(self) -> None:
        self._head_size = 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._give_up)

    def _keep_waiting(self) -> None:
        """Sets the timer of an idle connection, which uvicorn stops when anything but a request arrives."""
        at_rest = self._has_answered() and not self._receiving
        if at_rest and self._head_timer is None and self.timeout_keep_alive_task is None and self in self.connections:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._rest_timer = None

    def _give_up(self, *_: Any) -> None:
        self._stop_timers()
        if not self.transport.is_closing():
            self.transport.close()


def refuse(transport: asyncio.Transport, sentence: str) -> None:
    """Says that a request makes no sense, in the shape of all failures, and closes the connection."""
    body = failure_body(sentence)
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    transport.write(STATUS_LINE[400] + head + body)
    transport.close()


def failure_body(sentence: str) -> bytes:
    """Returns what the answer to a request that makes no sense says."""
    return json.dumps({"detail": sentence, "code": "bad_request"}).encode("ascii")


class JoinedWrites:
    """Holds a head back until more is written, or until the next turn of the event loop; the transport does the rest.

    It also knows who made the connection, for a WebSocket that takes it over.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.made_by_user = made_by_user(transport, is_ours=True)
        self._transport = transport
        self._loop = loop
        self.is_closing = transport.is_closing  # asked several times for each request
        self._head = b""
        self._handle: asyncio.Handle | None = None

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
