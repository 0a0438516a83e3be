"""Routes that run code and answer with its result, also if the code fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from kernelbox.base._errors import KernelNotFound
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.server.http._failures import failure
from kernelbox.server.jobs._answers import answer_with, answer_with_json
from kernelbox.server.jobs._client_disconnect import run_attended
from kernelbox.server.jobs._job_service import LOST
from kernelbox.server.routes._app_state import AppState, CheckedRoute, caller_of, kernels_of, needs, state_of
from kernelbox.server.routes._bodies import CONFLICT, FULL, NOT_FOUND, QUEUE_FULL
from kernelbox.server.routes._idempotent_jobs import FindKernel, Key, begin_job, options_of, running
from kernelbox.server.routes._models import ExecuteBody, ResultModel, RetryExecute
from kernelbox.wire._results import ExecutionResult

if TYPE_CHECKING:
    from kernelbox.server.jobs._running_job import OnBegin, Work
    from kernelbox.shells._asyncio_cell import OnEvent

router = APIRouter(route_class=CheckedRoute, tags=["Execution"])

_IN_KERNEL = {200: {"model": ResultModel}, **CONFLICT, **NOT_FOUND, **QUEUE_FULL, **FULL}
_IN_SESSION = {200: {"model": ResultModel}, **CONFLICT, **QUEUE_FULL, **FULL}


@router.post("/kernels/{key}/execute", summary="Run code in a kernel", responses=_IN_KERNEL)
@needs("run")
async def execute(key: str, body: ExecuteBody, request: Request, idempotency_key: Key = None) -> Response:
    kernels = kernels_of(request)
    return await _execute(request, body, lambda: kernels.kernel(key), idempotency_key)


@router.post("/kernels/{key}/execute/retry", summary="Run code, and replacement code if it fails", responses=_IN_KERNEL)
@needs("run")
async def execute_with_retry(key: str, body: RetryExecute, request: Request, idempotency_key: Key = None) -> Response:
    kernels = kernels_of(request)
    return await _retry(request, body, lambda: kernels.kernel(key), idempotency_key)


@router.post(
    "/sessions/{name}/execute", summary="Run code in the kernel of a name, opened if it is new", responses=_IN_SESSION
)
@needs("run")
async def execute_in_session(name: str, body: ExecuteBody, request: Request, idempotency_key: Key = None) -> Response:
    kernels = kernels_of(request)
    return await _execute(request, body, lambda: kernels.use(name), idempotency_key)


@router.post(
    "/sessions/{name}/execute_with_retry",
    summary="Run code in the kernel of a name, and replacement code if it fails",
    responses=_IN_SESSION,
)
@needs("run")
async def execute_in_session_with_retry(
    name: str, body: RetryExecute, request: Request, idempotency_key: Key = None
) -> Response:
    kernels = kernels_of(request)
    return await _retry(request, body, lambda: kernels.use(name), idempotency_key)


# The same for requests that have nothing odd in them.
DIRECT = {
    "/kernels/{key}/execute": (execute, ExecuteBody),
    "/sessions/{name}/execute": (execute_in_session, ExecuteBody),
}


async def _execute(request: Request, body: ExecuteBody, find: FindKernel, once: str | None) -> Response:
    if once is not None:
        return await _run_once(request, body, running(request, body, find), once)
    state = state_of(request)
    run = state.executions.run(await find(), body.code, options_of(state, body))
    return answer_with(await run_attended(request.receive, run), caller_of(request))


async def _retry(request: Request, body: RetryExecute, find: FindKernel, once: str | None) -> Response:
    state = state_of(request)
    if once is not None:

        async def work(on_event: OnEvent, on_begin: OnBegin) -> ExecutionResult:
            return await _run_until_success(state, body, find, on_event=on_event, on_begin=on_begin)

        return await _run_once(request, body, work, once)
    result = await run_attended(request.receive, _run_until_success(state, body, find))
    return answer_with(result, caller_of(request))


async def _run_once(request: Request, body: ExecuteBody, work: Work, once: str) -> Response:
    """Answers with the result of the job that the key began, also where the first answer was lost."""
    ended = None
    while ended is None:  # where another request with the key was refused this moment, this one is the first
        job_id = await begin_job(request, body, work, once)
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
    find: FindKernel,
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
