"""The pages of the documentation, kept from asking any other host for anything: ReDoc has a picture of its makers'."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PAGES = ("/docs", "/redoc")

_POLICY = "default-src 'self' 'unsafe-inline' data: blob:; frame-ancestors 'none'; base-uri 'none'; object-src 'none'"


def contain_pages(app: FastAPI) -> None:
    """Has browsers refuse what the pages of the documentation would load from elsewhere."""
    pages = [route for route in app.routes if isinstance(route, Route) and route.path in _PAGES]
    assert len(pages) == len(_PAGES)
    for page in pages:
        page.app = _Contained(page.app)


class _Contained:
    """Adds the policy to the answers of one route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = _POLICY
            await send(message)

        await self._app(scope, receive, with_policy)
