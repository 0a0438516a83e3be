"""Streams of events: server-sent events and WebSockets, both from the numbered events of a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from kernelbox.base._errors import KernelBoxError
from kernelbox.server.http._failures import RequestRefused, describe_failure
from kernelbox.server.http._long_json import PIECE, cut
from kernelbox.server.http._request_limits import check_values
from kernelbox.server.jobs._client_disconnect import run_attended

Event = tuple[int, str, bytes | bytearray]
Events = AsyncGenerator[Event]

# Seconds after which a stream without events says that it lives: proxies close what is silent for a minute.
_SIGN_OF_LIFE = 15.0

# What a WebSocket is closed with where the request was refused (RFC 6455, 7.4.1).
_REFUSED = 1008


class EventStream(Response):
    """Sends events as they come (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: Events,
        *,
        headers: dict[str, str],
        on_gone: Callable[[], object] | None = None,
        sign_of_life: float = _SIGN_OF_LIFE,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers})
        del self.headers["content-length"]
        self._events = events
        self._on_gone = on_gone or (lambda: None)
        self._sign_of_life = sign_of_life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        signs = _SignsOfLife(send, self._sign_of_life)
        try:
            await run_attended(receive, self._send_all(send, signs))
        except (OSError, RequestRefused):
            self._on_gone()
        except BaseException:
            self._on_gone()
            raise
        finally:
            signs.end()

    async def _send_all(self, send: Send, signs: _SignsOfLife) -> None:
        async with contextlib.aclosing(self._events) as events:
            async for event in events:
                signs.is_held = True
                for piece in _written(event):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    if len(piece) == PIECE:
                        await asyncio.sleep(0)  # others are served between the pieces of a long event
                signs.is_held = False
        signs.end()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _SignsOfLife:
    """Sends comments, which clients pass over, while a stream lasts; none while it is held, in an event."""

    def __init__(self, send: Send, seconds: float) -> None:
        self.is_held = False
        self._send = send
        self._seconds = seconds
        self._sending: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)  # most streams are over sooner

    def end(self) -> None:
        self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _begin(self) -> None:
        self._sending = asyncio.ensure_future(self._send_often())

    async def _send_often(self) -> None:
        while True:
            if not self.is_held:
                await self._send({"type": "http.response.body", "body": b": \n\n", "more_body": True})
            await asyncio.sleep(self._seconds)


def _written(event: Event) -> Iterator[bytes]:
    """Yields an event as it is sent, a long one in pieces."""
    number, kind, data = event
    head = b"id: %d\nevent: %s\ndata: " % (number, kind.encode("ascii"))
    if len(data) <= PIECE:
        yield b"%s%s\n\n" % (head, data)
    else:
        yield head
        yield from cut(data)
        yield b"\n\n"


async def send_events(socket: WebSocket, events: Events) -> None:
    """Sends events over a WebSocket, each as one message with its number and type."""
    async with contextlib.aclosing(events):
        async for number, kind, event in events:
            await socket.send_text(f'{{"seq":{number},"type":"{kind}",{str(memoryview(event)[1:], "utf-8")}')


async def refuse(socket: WebSocket, exc: KernelBoxError | RequestRefused) -> None:
    """Says on a WebSocket why the request was refused, and closes it."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it is closed already
        await socket.send_text(json.dumps({"type": "failed", **describe_failure(exc)}))
        await socket.close(_REFUSED)


async def receive_message(socket: WebSocket) -> dict[str, Any]:
    """Returns the next message of a client; raises RequestRefused if it is not a JSON object."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    text = message.get("text")
    data = message.get("bytes") or b"" if text is None else text.encode("utf-8", "surrogatepass")
    check_values(data)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RequestRefused(422, "invalid_request", "send JSON objects")
    return value
