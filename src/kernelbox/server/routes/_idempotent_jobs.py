"""How jobs begin: in a kernel, or in the kernel of a name, and only once for each Idempotency-Key."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Header, Path
from fastapi.requests import HTTPConnection

from kernelbox.core._cell_options import CellOptions
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.server.http._failures import RequestRefused
from kernelbox.server.jobs._job_service import fingerprint
from kernelbox.server.routes._app_state import AppState, CheckedRoute, caller_of, kernels_of, state_of
from kernelbox.server.routes._models import CellBody, ExecuteBody, JobExecute
from kernelbox.wire._results import ExecutionResult

if TYPE_CHECKING:
    from kernelbox.server.jobs._running_job import OnBegin, Work
    from kernelbox.shells._asyncio_cell import OnEvent

_KEY = "^[!-~]{1,255}$"
is_key = re.compile(_KEY).fullmatch

Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="runs the request once, however often it comes", pattern=_KEY),
]


async def _names_kernel(key: Annotated[str, Path(description="an id, a name or a session name")]) -> None:
    """Describes the path of a route that runs code in an existing kernel."""


async def _names_session(name: Annotated[str, Path(description="of a kernel, which is opened if it is new")]) -> None:
    """Describes the path of a route that runs code in the kernel of a name."""


def routers(tag: str) -> tuple[APIRouter, APIRouter]:
    """Returns the routers of routes that run code: in an existing kernel, and in the kernel of a name."""
    return (
        APIRouter(prefix="/kernels/{key}", tags=[tag], route_class=CheckedRoute, dependencies=[Depends(_names_kernel)]),
        APIRouter(
            prefix="/sessions/{name}", tags=[tag], route_class=CheckedRoute, dependencies=[Depends(_names_session)]
        ),
    )


def find_kernel(request: HTTPConnection) -> Callable[[], Awaitable[KernelHandle]]:
    """Returns what finds the kernel in the path of a request, and opens that of a name if it is new."""
    kernels, path = kernels_of(request), request.path_params
    return lambda: kernels.use(path["name"]) if "name" in path else kernels.kernel(path["key"])


async def begin_cell(request: HTTPConnection, body: ExecuteBody | JobExecute, once: str | None) -> str:
    """Begins a job that runs one cell in the kernel of a path; returns its id."""
    state, find = state_of(request), find_kernel(request)

    async def work(on_event: OnEvent, on_begin: OnBegin) -> ExecutionResult:
        options = options_of(state, body)
        return await state.executions.run(await find(), body.code, options, on_event=on_event, on_begin=on_begin)

    return await begin_job(request, body, work, once)


async def begin_job(request: HTTPConnection, body: CellBody, work: Work, once: str | None) -> str:
    """Begins a job that does the work; the same request with the same key begins one job."""
    if once is not None and not is_key(once):
        sentence = "an Idempotency-Key has 1 to 255 ASCII letters, digits or punctuation, without spaces"
        raise RequestRefused(422, "invalid_request", sentence)
    # pydantic's own JSON has no form for halves of characters, which code may have.
    about = {"fingerprint": fingerprint(request.scope["path"], json.dumps(body.model_dump()))}
    return await state_of(request).jobs.begin(caller_of(request), about, work, key=once)


def options_of(state: AppState, body: ExecuteBody | JobExecute) -> CellOptions:
    """Returns what a request wants its code run with."""
    return state.executions.options_for(body.language, body.timeout, body.approve, body.output_char_limit, body.budget)
