"""The routes that run most code, without what FastAPI does for a request: half of what a short cell costs the server.

A direct route stands before FastAPI's own route of the same path, and calls the same function. It takes requests that
are as most are. What is odd in any way (another content type, an Idempotency-Key, a body that does not fit) goes
on to FastAPI's route, which is in the schema and has the words for what is wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, compile_path
from starlette.types import Message, Receive, Scope, Send

from kernelbox.server._models import Execute

Endpoint = Callable[[str, Execute, Request], Awaitable[Response]]

# Where a request carries the body that a direct route has read and not understood.
_NOT_TAKEN = "kernelbox.not_taken"

_JSON = (b"content-type", b"application/json")


class DirectRoute(BaseRoute):
    """Runs code for plain POST requests to a path with one parameter."""

    def __init__(self, path: str, endpoint: Endpoint) -> None:
        self._pattern, self.path_format, _ = compile_path(path)
        self._endpoint = endpoint

    def __repr__(self) -> str:
        return f"<DirectRoute {self.path_format}>"

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path") or _NOT_TAKEN in scope:
            return Match.NONE, {}
        found = self._pattern.match(scope["path"])
        if found is None or not _is_plain(scope):
            return Match.NONE, {}
        return Match.FULL, {"path_params": found.groupdict(), "endpoint": self._endpoint}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        raw = await request.body()
        try:
            body = Execute.model_validate_json(raw)
        except ValidationError:
            scope[_NOT_TAKEN] = True
            await scope["router"].app(scope, _Again(raw, receive), send)
            return
        (key,) = scope["path_params"].values()
        response = await self._endpoint(key, body, request)
        await response(scope, receive, send)


def _is_plain(scope: Scope) -> bool:
    headers = scope["headers"]
    return _JSON in headers and not any(name == b"idempotency-key" for name, _ in headers)


class _Again:
    """Receives a body for the second time, and then what comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._message: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._receive = receive

    async def __call__(self) -> Message:
        message, self._message = self._message, None
        return await self._receive() if message is None else message
