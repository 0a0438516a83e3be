"""Error answers of the service: one shape for all, with a sentence and a code."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from kernelbox.base._errors import (
    ApprovalClosed,
    InvalidInput,
    KernelBoxError,
    KernelBusy,
    KernelDied,
    KernelExists,
    KernelNotFound,
    LimitReached,
    MissingExtra,
    OutputNotKept,
    StartFailed,
    StoreFailed,
    is_exhausted,
)

_log = logging.getLogger("kernelbox.server")

# The status and the code of each error that has its own sentence for the caller.
_ANSWERS: tuple[tuple[type[KernelBoxError], int, str], ...] = (
    (KernelExists, 409, "kernel_exists"),
    (OutputNotKept, 404, "output_not_kept"),
    (KernelBusy, 409, "kernel_busy"),
    (ApprovalClosed, 409, "approval_closed"),
    (InvalidInput, 422, "invalid_request"),
    (MissingExtra, 422, "not_installed"),
)

_CODES = {404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large"}

# What can be done about a kernel that has died.
AFTER_DEATH = "restart it, or execute in the session of its name, which opens a fresh one"

_INTERNAL = "the server failed; its log says how"

# What is wrong, for clients; Pydantic's own words are for those who wrote the models.
_WORDS = {
    "extra_forbidden": "there is no field of this name; leave it out",
    "model_attributes_type": "send a JSON object, with the header `Content-Type: application/json`",
}

# Characters of a message about a wrong value, which may be a whole program.
_LONGEST_MESSAGE = 500

# Characters of an unknown path that are shown.
_LONGEST_PATH = 200


class RequestRefused(Exception):
    """Raised by a route to answer with a status, a code and a sentence."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = headers


def about_to_end() -> LimitReached:
    """Returns what is raised for code that arrives while the server is stopping."""
    return LimitReached("this server is about to end; try again later", of_server=True, retry_after=5, stopping=True)


def too_much_open() -> LimitReached:
    """Returns what is raised where this process can open no more."""
    return LimitReached("too much is open in this server; try again later", of_server=True)


def failure(status: int, code: str, detail: object, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Returns the answer to a request that failed."""
    return JSONResponse({"detail": detail, "code": code}, status, headers)


def add_error_handlers(app: FastAPI) -> None:
    """Makes every error answer have the same shape."""
    app.add_exception_handler(KernelBoxError, _on_told)
    app.add_exception_handler(RequestRefused, _on_told)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_told)
    app.add_exception_handler(Exception, _on_unexpected)
    app.router.default = _on_no_route


def describe_failure(exc: KernelBoxError | RequestRefused | None) -> dict[str, Any]:
    """Returns the content of an error answer, for the events of a job; None is a failure of the server."""
    match exc:
        case RequestRefused():
            return {"status": exc.status, "code": exc.code, "detail": str(exc)}
        case None:
            return {"status": 500, "code": "internal_error", "detail": _INTERNAL}
    answer = answer_to(exc)
    return {"status": answer.status_code, **json.loads(bytes(answer.body))}


def sentence_about(exc: Exception) -> str:
    """Returns the sentence about a failure for a front end or a result; it names no path of the server."""
    if isinstance(exc, KernelBoxError):
        return str(describe_failure(exc)["detail"])
    if isinstance(exc, ValueError):  # about what was asked for
        return str(exc)
    _log.error("%s: %s", type(exc).__name__, exc)
    return _INTERNAL


def answer_to(exc: KernelBoxError | RequestRefused | HTTPException | ClientDisconnect) -> JSONResponse:
    """Returns the answer for an error that has a sentence for the caller."""
    if isinstance(exc, RequestRefused):
        return failure(exc.status, exc.code, str(exc), exc.headers)
    if isinstance(exc, HTTPException):
        return failure(exc.status_code, _CODES.get(exc.status_code, "failed"), exc.detail, exc.headers)
    if isinstance(exc, ClientDisconnect):  # for the log: no one reads the answer
        return failure(499, "client_gone", "the client has gone before all of its request had come")
    if isinstance(exc, KernelNotFound):
        return failure(404, "kernel_not_found", f"there is no kernel {exc.key!r}; GET /kernels lists the kernels")
    if isinstance(exc, KernelDied):
        return failure(409, "kernel_died", f"the kernel died: {exc.cause}; {exc.advice or AFTER_DEATH}")
    if is_exhausted(exc):
        exc = too_much_open()
    if isinstance(exc, LimitReached):
        status, code = (503, "server_full") if exc.of_server else (429, "too_many_requests")
        code = "draining" if exc.stopping else code
        return failure(status, code, str(exc), {"Retry-After": str(exc.retry_after)})
    if isinstance(exc, StoreFailed):  # its sentence names paths, which are the operator's to know
        _log.error("%s", exc)
        return failure(500, "store_failed", "the server cannot use its store; its log says why")
    if isinstance(exc, StartFailed):  # nor is the command of a kernelspec the client's
        _log.error("%s", exc)
        return failure(500, "start_failed", "the kernel could not be started; the server's log says why")
    for kind, status, code in _ANSWERS:
        if isinstance(exc, kind):
            return failure(status, code, str(exc))
    return failure(400, "failed", str(exc))


async def _on_told(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, KernelBoxError | RequestRefused | ClientDisconnect)
    return answer_to(exc)


async def _on_invalid(request: Request, exc: Exception) -> JSONResponse:
    """Says what does not fit the schema, in the shape that FastAPI has for it, without the values themselves."""
    assert isinstance(exc, RequestValidationError)
    return failure(422, "invalid_request", [_describe(problem) for problem in exc.errors()])


def describe_problems(problems: Sequence[Mapping[str, Any]]) -> str:
    """Returns what does not fit the schema, as one sentence."""
    described = [_describe(problem) for problem in problems[:10]]
    return "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in described)


def _describe(problem: Mapping[str, Any]) -> dict[str, Any]:
    said = _WORDS.get(problem["type"], problem["msg"])
    if problem["type"] == "json_invalid":
        said = f"this is not JSON: {problem['ctx']['error']}"
    return {"loc": list(problem["loc"]), "msg": said[:_LONGEST_MESSAGE], "type": problem["type"]}


async def _on_http(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)
    if exc.status_code != 405:
        return answer_to(exc)
    methods = _methods_at(request)
    sentence = f"{_shown(request.url.path)} takes {methods}, and not {request.method}; /docs shows what each route does"
    return failure(405, _CODES[405], sentence, {"Allow": methods})


def _methods_at(request: Request) -> str:
    """Returns what can be done at a path, by any of the routes that lead there; pages are not in the schema."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    here = [methods for path, methods in paths.items() if compile_path(path)[0].match(request.url.path)]
    found = {method.upper() for methods in here for method in methods} or {"GET"}
    return ", ".join(sorted(found | ({"HEAD"} if "GET" in found else set())))


async def _on_no_route(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers requests for unknown paths; Starlette answers a WebSocket with an empty 403."""
    path = _shown(scope["path"])
    what = "WebSocket at" if scope["type"] == "websocket" else "route"
    advice = "; /docs shows the routes" if scope["app"].openapi_url else ""
    sentence = f"there is no {what} {path}{advice}"
    await failure(404, _CODES[404], sentence)(scope, receive, send)


def _shown(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH and path.isprintable() else f"{path[:_LONGEST_PATH]!r}…"


async def _on_unexpected(request: Request, exc: Exception) -> JSONResponse:
    return failure(500, "internal_error", _INTERNAL)
