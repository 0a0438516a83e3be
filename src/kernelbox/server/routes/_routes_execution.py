"""Routes that run code and answer with its result, also if the code fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.responses import Response

from kernelbox.base._errors import KernelNotFound
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.server.http._failures import failure
from kernelbox.server.jobs._answers import answer_with, answer_with_json
from kernelbox.server.jobs._client_disconnect import run_attended
from kernelbox.server.jobs._job_service import LOST
from kernelbox.server.routes._app_state import AppState, caller_of, needs, state_of
from kernelbox.server.routes._bodies import CONFLICT, FULL, NOT_FOUND, QUEUE_FULL
from kernelbox.server.routes._idempotent_jobs import Key, begin_cell, begin_job, find_kernel, options_of, routers
from kernelbox.server.routes._models import ExecuteBody, ResultModel, RetryExecute
from kernelbox.wire._results import ExecutionResult

if TYPE_CHECKING:
    from kernelbox.server.jobs._running_job import OnBegin
    from kernelbox.shells._asyncio_cell import OnEvent

in_kernel, in_session = routers("Execution")

_IN_KERNEL = {200: {"model": ResultModel}, **CONFLICT, **NOT_FOUND, **QUEUE_FULL, **FULL}
_IN_SESSION = {200: {"model": ResultModel}, **CONFLICT, **QUEUE_FULL, **FULL}


@in_kernel.post("/execute", summary="Run code in a kernel", responses=_IN_KERNEL)
@in_session.post("/execute", summary="Run code in the kernel of a name, opened if it is new", responses=_IN_SESSION)
@needs("run")
async def execute(body: ExecuteBody, request: Request, idempotency_key: Key = None) -> Response:
    if idempotency_key is not None:
        return await _run_once(request, lambda: begin_cell(request, body, idempotency_key))
    state, find = state_of(request), find_kernel(request)
    run = state.executions.run(await find(), body.code, options_of(state, body))
    return answer_with(await run_attended(request.receive, run), caller_of(request))


@in_kernel.post("/execute/retry", summary="Run code, and replacement code if it fails", responses=_IN_KERNEL)
@in_session.post(
    "/execute_with_retry",
    summary="Run code in the kernel of a name, and replacement code if it fails",
    responses=_IN_SESSION,
)
@needs("run")
async def execute_with_retry(body: RetryExecute, request: Request, idempotency_key: Key = None) -> Response:
    state, find = state_of(request), find_kernel(request)

    async def work(on_event: OnEvent | None = None, on_begin: OnBegin | None = None) -> ExecutionResult:
        return await _run_until_success(state, body, find, on_event=on_event, on_begin=on_begin)

    if idempotency_key is not None:
        return await _run_once(request, lambda: begin_job(request, body, work, idempotency_key))
    return answer_with(await run_attended(request.receive, work()), caller_of(request))


# The same for requests that have nothing odd in them.
DIRECT = {
    "/kernels/{key}/execute": (execute, ExecuteBody),
    "/sessions/{name}/execute": (execute, ExecuteBody),
}


async def _run_once(request: Request, begin: Callable[[], Awaitable[str]]) -> Response:
    """Answers with the result of the job that the key began, also where the first answer was lost."""
    ended = None
    while ended is None:  # where another request with the key was refused this moment, this one is the first
        job_id = await begin()
        ended = await state_of(request).jobs.result(job_id)
    record, result = ended
    headers = {"Location": f"/jobs/{job_id}"}
    if result is not None:
        return answer_with_json(result, headers)
    match record:
        case {"failed": {"status": int(status), "code": str(code), "detail": detail}}:
            return failure(status, code, detail, headers)
    return failure(409, "job_lost", LOST, headers)


async def _run_until_success(
    state: AppState,
    body: RetryExecute,
    find: Callable[[], Awaitable[KernelHandle]],
    *,
    on_event: OnEvent | None = None,
    on_begin: OnBegin | None = None,
) -> ExecutionResult:
    """Runs code until it succeeds, is interrupted, or has been tried often enough.

    A kernel that an attempt ends is started anew.
    """
    code, options = body.code, options_of(state, body)
    allowed = body.max_attempts or state.kernels.config.max_retries
    attempts = []
    for attempt in range(1, allowed + 1):
        kernel = await find()
        result = await state.executions.run(kernel, code, options, on_event=on_event, on_begin=on_begin)
        attempts.append(result.snapshot(attempt, code))
        result.attempts = attempts
        if result.ok or _was_interrupted(result):
            return result
        if attempt == allowed:
            break
        if result.state == "lost" and not await _can_go_on(state, kernel):
            return result
        code = body.code_after(attempt) or code
    result.status = "max_attempts_exceeded"
    return result


def _was_interrupted(result: ExecutionResult) -> bool:
    """Returns whether a client has had the code stopped."""
    return result.ending in ("interrupted", "never ran") and result.status == "error" and result.state == "kept"


async def _can_go_on(state: AppState, kernel: KernelHandle) -> bool:
    """Starts a dead kernel anew; returns False if it has been destroyed."""
    try:
        record = await state.kernels.get(kernel.record.kernel_id)
        if not record.alive:
            await state.kernels.restart(record.kernel_id)
    except KernelNotFound:
        return False
    return True
