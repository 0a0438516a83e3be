"""Limits of the body of a request: its size, how many values it has, and how long its parts may take."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelbox.server.http._failures import RequestRefused, failure
from kernelbox.server.http._headers import first_of
from kernelbox.server.http._protocol import BODY_SIZE
from kernelbox.wire._json import MAX_VALUES, TooLarge, check_shape

# Bytes that must arrive for each second of waiting: a telephone line carries more.
_SLOWEST = 1_000


class BodyLimited:
    """Rejects bodies that are too large, at once if they announce it, and those that arrive too slowly."""

    def __init__(self, app: ASGIApp, *, most: int, most_below: Mapping[str, int], patience: float) -> None:
        """`most` is how many bytes a request may have, and `most_below` how many where its path begins so."""
        self._app = app
        self._most = most
        self._most_below = most_below
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        most = next((size for start, size in self._most_below.items() if path.startswith(start)), self._most)
        size = scope[BODY_SIZE] if BODY_SIZE in scope else _announced_size(scope)
        if size > most:
            await failure(413, "too_large", _too_large(most), {"Connection": "close"})(scope, receive, send)
            return
        await self._app(scope, receive if BODY_SIZE in scope else self._counting(receive, most), send)

    def _counting(self, receive: Receive, most: int) -> Receive:
        size, waited, complete, pause = 0, 0.0, False, self._patience

        async def counted() -> Message:
            nonlocal size, waited, complete
            if complete:
                return await receive()  # it waits for the end of the connection, which may take long
            began = time.monotonic()
            try:
                async with asyncio.timeout(min(pause, pause + size / _SLOWEST - waited)):
                    message = await receive()
            except TimeoutError:
                sentence = (
                    f"the request comes too slowly: send each part within {pause:g} s, and {_SLOWEST:,} bytes a second"
                )
                raise HTTPException(408, sentence, {"Connection": "close"}) from None
            waited += time.monotonic() - began
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > most:
                raise HTTPException(413, _too_large(most), {"Connection": "close"})
            return message

        return counted


def _announced_size(scope: Scope) -> float:
    """Returns the announced size of a body; anything that is not a number is too large."""
    announced = first_of(scope, b"content-length", "0")
    return int(announced[:20]) if announced.isdecimal() else math.inf


def _too_large(most: int) -> str:
    return f"the request has more than {most:,} bytes"


def check_values(body: bytes) -> None:
    """Raises RequestRefused for JSON that would take long to read, before it is: nobody else is served meanwhile."""
    try:
        check_shape(body, MAX_VALUES)
    except TooLarge:
        raise RequestRefused(413, "too_large", f"the request has more than {MAX_VALUES:,} values") from None
    except ValueError as exc:
        raise RequestRefused(422, "invalid_request", f"the request is not JSON that can be read: {exc}") from None


async def read_body(receive: Receive) -> bytes:
    """Returns the body of a request; raises ClientDisconnect."""
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """Returns what receives a body a second time, and then what follows it."""
    again: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return again.pop() if again else await receive()

    return replayed
