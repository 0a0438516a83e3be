"""HEAD, for every path that takes GET: monitors and `curl -I` send it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Answers HEAD with what GET would be answered with, without the body (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_told = False

        async def send_head(message: Message) -> None:
            nonlocal is_told
            if message["type"] == "http.response.start":
                is_told = True
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def receive_until_told() -> Message:
            return {"type": "http.disconnect"} if is_told else await receive()  # a stream ends when its client goes

        await self._app({**scope, "method": "GET"}, receive_until_told, send_head)
