"""The HTTP requests that a server is answering: as the standard has them, watched, and ended when the server stops."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The key in the scope of an HTTP request under which its end is noted.
GONE = "kernelbox.gone"

_DISCONNECT: Message = {"type": "http.disconnect"}


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

        await self._app({**scope, "headers": _trimmed(scope["headers"]), GONE: gone}, watched, noting)
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


def _trimmed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns headers without blanks around their values, which are no part of them (RFC 9110, 5.5)."""
    return [(name, value.strip(b" \t")) for name, value in headers]
