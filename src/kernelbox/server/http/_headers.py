"""Headers of requests and answers: read by name, sent alone for HEAD, and the policy of the documentation pages."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def all_of(scope: Scope, name: bytes) -> list[str]:
    """Returns the values of a header, whose name is in small letters as ASGI has them."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def first_of(scope: Scope, name: bytes, default: str = "") -> str:
    """Returns the first value of a header."""
    for key, value in scope["headers"]:
        if key == name:
            found: str = value.decode("latin-1")
            return found
    return default


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


_PAGES = ("/docs", "/redoc")

# What our pages may load: nothing from elsewhere.
PAGE_POLICY = (
    "default-src 'self' 'unsafe-inline' data: blob:; frame-ancestors 'none'; base-uri 'none'; object-src 'none'"
)


def contain_pages(app: FastAPI) -> None:
    """Makes browsers refuse what the documentation pages would load from elsewhere."""
    pages = [route for route in app.routes if isinstance(route, Route) and route.path in _PAGES]
    assert len(pages) == len(_PAGES)
    for page in pages:
        page.app = _contained(page.app)


def _contained(app: ASGIApp) -> ASGIApp:
    """Adds the policy to the answers of one route."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = PAGE_POLICY
            await send(message)

        await app(scope, receive, with_policy)

    return answer
