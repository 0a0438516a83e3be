"""How large a request may be, and how long its parts may take."""

from __future__ import annotations

import asyncio
import math
import time

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelbox.server.http._failures import failure
from kernelbox.server.http._headers import first_of
from kernelbox.server.http._protocol import BODY_SIZE

# What the paths of files begin with; a file may be larger than another request.
FILES = "/files/"

# Bytes that a request must have for each second that it is waited for: a telephone line carries more.
_SLOWEST = 1_000


class BodyLimited:
    """Refuses requests that are too large, at once if they say so, and those that do not come, or come byte by byte."""

    def __init__(self, app: ASGIApp, *, max_body: int, max_upload: int, body_timeout: float) -> None:
        self._app = app
        self._max_body = max_body
        self._max_upload = max_upload
        self._body_timeout = body_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._max_upload if scope["path"].startswith(FILES) else self._max_body
        size = scope[BODY_SIZE] if BODY_SIZE in scope else _announced_size(scope)
        if size > most:
            await failure(413, "too_large", _too_large(most), {"Connection": "close"})(scope, receive, send)
            return
        await self._app(scope, receive if BODY_SIZE in scope else self._counting(receive, most), send)

    def _counting(self, receive: Receive, most: int) -> Receive:
        size, waited, complete, pause = 0, 0.0, False, self._body_timeout

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
    """Returns how many bytes the body of a request is said to have; what is no number is too many."""
    announced = first_of(scope, b"content-length", "0")
    return int(announced[:20]) if announced.isdecimal() else math.inf


def _too_large(most: int) -> str:
    return f"the request has more than {most:,} bytes"
