"""The HTTP requests that a server is answering: whole, as the standard has them, watched, and ended when it stops."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelbox.mcp._mcp_options import LARGEST_MESSAGE
from kernelbox.tools._bounds import check_message

# The key in the scope of an HTTP request under which its end is noted.
GONE = "kernelbox.gone"

_DISCONNECT: Message = {"type": "http.disconnect"}

# Seconds in which the next part of a message must come.
_PATIENCE = 30.0

_TOO_LARGE = f"the message has more than {LARGEST_MESSAGE:,} bytes"


class Requests:
    """Passes requests on to an application, which sees in their scope whether the client has gone.

    The older protocol would let their tools run on. The answer could not be fetched later either, because no events
    are stored.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ends the requests that are left, by telling the application that their clients have gone.

        Streams of events have no other end, and being cancelled looks like a failure in the log.
        """
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        gone, said = asyncio.Event(), set[object]()

        async def watched() -> Message:
            message = await self._receive(receive)
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        async def noting(message: Message) -> None:
            said.add("end" if message["type"] == "http.response.body" and not message.get("more_body") else "start")
            await send(message)

        await self._app({**scope, "headers": _cleaned(scope["headers"]), GONE: gone}, watched, noting)
        if self._stopping.is_set() and "end" not in said:
            if not said:
                await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _receive(self, receive: Receive) -> Message:
        """Returns what the client sends next; the end of the server is the end of the client."""
        receiving = asyncio.ensure_future(receive())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else _DISCONNECT
        finally:
            receiving.cancel()
            stopping.cancel()


def _cleaned(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns headers without blanks around their values, which are no part of them (RFC 9110, 5.5).

    A stream that a client wants to resume is a new one, because no events are stored; the SDK would not answer.
    """
    return [(name, value.strip(b" \t")) for name, value in headers if name != b"last-event-id"]


class WholeMessages:
    """Passes on requests with all that they bring; refuses a message that is too large, or does not come."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await _read_body(scope, receive)
        if isinstance(body, JSONResponse):
            await body(scope, receive, send)
        elif body is not None:
            await self._app(scope, _replaying(body, receive), send)


async def _read_body(scope: Scope, receive: Receive) -> bytes | JSONResponse | None:
    """Returns what a request brings, or what is answered in its place; None if the client has gone."""
    announced = Headers(scope=scope).get("content-length", "0")
    if not announced.isdecimal() or int(announced[:20]) > LARGEST_MESSAGE:
        return _refusal(413, _TOO_LARGE)
    body, more = bytearray(), True
    while more:
        try:
            async with asyncio.timeout(_PATIENCE):
                message = await receive()
        except TimeoutError:
            return _refusal(408, f"no part of the message came for {_PATIENCE:g} s")
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST_MESSAGE:
            return _refusal(413, _TOO_LARGE)
    try:
        check_message(body)
    except ValueError as exc:
        return _refusal(400, f"the message has {exc}")
    return bytes(body)


def _refusal(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, {"Connection": "close"})


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Returns a function that gives all of a body first, and then what the client sends."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
