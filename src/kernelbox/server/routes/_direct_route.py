"""The busiest routes, without FastAPI's work for each request, which is half of what a short cell costs the server.

A direct route stands before FastAPI's own route of the same path, and calls the same function. It takes requests that
are as most are. What is odd in any way (another content type, a header that comes twice, a body that does not fit, a
span that has to have the name of its route) goes on to FastAPI's route, which is in the schema and has the words for
what is wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from kernelbox.base._errors import KernelBoxError
from kernelbox.server.http._failures import RequestRefused, answer_to
from kernelbox.server.http._request_limits import check_values, read_body, replay
from kernelbox.server.routes._app_state import require_need
from kernelbox.server.routes._idempotent_jobs import is_key
from kernelbox.server.routes._models import CellBody

Endpoint = Callable[[Any, Request, str | None], Awaitable[Response]]
Direct = tuple[Endpoint, type[CellBody]]

# Where a request carries the span that FastAPI makes for it.
_SPAN = "fastapi.telemetry"


class DirectRoutes:
    """Runs code for plain POST requests."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, Direct]) -> None:
        self._app = app
        self._routes = [(compile_path(path)[0], *direct) for path, direct in routes.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_plain(scope) or (found := self._find(scope["path"])) is None:
            await self._app(scope, receive, send)
            return
        endpoint, model, scope["path_params"] = found
        answer: Response
        try:
            require_need(Request(scope), endpoint)
            raw = await read_body(receive)
            check_values(raw)
            body = model.model_validate_json(raw)
        except (HTTPException, ClientDisconnect, RequestRefused) as exc:
            answer = answer_to(exc)
        except ValidationError:
            await self._app(scope, replay(raw, receive), send)
            return
        else:
            request = Request(scope, receive)
            answer = await _answer(endpoint(body, request, request.headers.get("idempotency-key")))
        await answer(scope, receive, send)

    def _find(self, path: str) -> tuple[Endpoint, type[CellBody], dict[str, str]] | None:
        for pattern, endpoint, model in self._routes:
            if found := pattern.match(path):
                return endpoint, model, found.groupdict()
        return None


async def _answer(answering: Awaitable[Response]) -> Response:
    try:
        return await answering
    except (KernelBoxError, RequestRefused) as exc:
        return answer_to(exc)


def _is_plain(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path") or _SPAN in scope:
        return False
    headers = dict(scope["headers"])
    key = headers.get(b"idempotency-key", b"none").decode("latin-1")
    is_json = headers.get(b"content-type") == b"application/json"
    return is_json and is_key(key) is not None and len(headers) == len(scope["headers"])
