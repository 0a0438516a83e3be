"""How jobs begin: in a kernel, or in the kernel of a name, and only once for each Idempotency-Key."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import Header
from fastapi.requests import HTTPConnection

from kernelbox.core._cell_options import CellOptions
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.server.http._failures import RequestRefused
from kernelbox.server.jobs._job_service import fingerprint
from kernelbox.server.routes._app_state import AppState, caller_of, kernels_of, state_of
from kernelbox.server.routes._models import CellBody, ExecuteBody, JobExecute
from kernelbox.wire._results import ExecutionResult

if TYPE_CHECKING:
    from kernelbox.server.jobs._running_job import OnBegin, Work
    from kernelbox.shells._asyncio_cell import OnEvent

FindKernel = Callable[[], Awaitable[KernelHandle]]

_KEY = "^[!-~]{1,255}$"
is_key = re.compile(_KEY).fullmatch

Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="runs the request once, however often it comes", pattern=_KEY),
]


async def begin_in_kernel(request: HTTPConnection, key: str, body: ExecuteBody | JobExecute, once: str | None) -> str:
    """Begins a job in an existing kernel; returns its id."""
    kernels = kernels_of(request)
    return await begin_job(request, body, running(request, body, lambda: kernels.kernel(key)), once)


async def begin_in_session(request: HTTPConnection, name: str, body: ExecuteBody | JobExecute, once: str | None) -> str:
    """Begins a job in the kernel of a name, which is opened if it is new; returns its id."""
    kernels = kernels_of(request)
    return await begin_job(request, body, running(request, body, lambda: kernels.use(name)), once)


async def begin_job(request: HTTPConnection, body: CellBody, work: Work, once: str | None) -> str:
    """Begins a job that does the work; the same request with the same key begins one job."""
    if once is not None and not is_key(once):
        sentence = "an Idempotency-Key has 1 to 255 ASCII letters, digits or punctuation, without spaces"
        raise RequestRefused(422, "invalid_request", sentence)
    # pydantic's own JSON has no form for halves of characters, which code may have.
    about = {"fingerprint": fingerprint(request.scope["path"], json.dumps(body.model_dump()))}
    return await state_of(request).jobs.begin(caller_of(request), about, work, key=once)


def running(request: HTTPConnection, body: ExecuteBody | JobExecute, find: FindKernel) -> Work:
    """Returns the work of a job that runs one cell."""
    state = state_of(request)

    async def work(on_event: OnEvent, on_begin: OnBegin) -> ExecutionResult:
        return await state.executions.run(
            await find(), body.code, options_of(state, body), on_event=on_event, on_begin=on_begin
        )

    return work


def options_of(state: AppState, body: ExecuteBody | JobExecute) -> CellOptions:
    """Returns what a request wants its code run with."""
    return state.executions.options_for(body.language, body.timeout, body.approve, body.output_char_limit, body.budget)
