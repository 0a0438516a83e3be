"""Routes that run code and answer with its result, whatever the code does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request
from starlette.responses import Response

from kernelbox.core._kernel import Kernel
from kernelbox.server._answers import JsonAnswer, describe_result
from kernelbox.server._attending import run_attended
from kernelbox.server._executions import Cell
from kernelbox.server._models import Execute, ResultModel, RetryExecute
from kernelbox.server._responses import FULL, NOT_FOUND, QUEUE_FULL
from kernelbox.server._retrying import run_until_success
from kernelbox.server._state import kernels_of, state_of

router = APIRouter(tags=["Execution"])

_IN_KERNEL = {200: {"model": ResultModel}, **NOT_FOUND, **QUEUE_FULL, **FULL}
_IN_SESSION = {200: {"model": ResultModel}, **QUEUE_FULL, **FULL}

FindKernel = Callable[[], Awaitable[Kernel]]


@router.post("/kernels/{key}/execute", summary="Run code in a kernel", responses=_IN_KERNEL)
async def execute(key: str, body: Execute, request: Request) -> Response:
    kernels = kernels_of(request, "run")
    return await _execute(request, body, lambda: kernels.kernel(key))


@router.post("/kernels/{key}/execute/retry", summary="Run code, and other code where it fails", responses=_IN_KERNEL)
async def execute_with_retry(key: str, body: RetryExecute, request: Request) -> Response:
    kernels = kernels_of(request, "run")
    return await _retry(request, body, lambda: kernels.kernel(key))


@router.post(
    "/sessions/{name}/execute", summary="Run code in the kernel of a name, opened if it is new", responses=_IN_SESSION
)
async def execute_in_session(name: str, body: Execute, request: Request) -> Response:
    kernels = kernels_of(request, "run")
    return await _execute(request, body, lambda: kernels.use(name))


@router.post(
    "/sessions/{name}/execute_with_retry",
    summary="Run code in the kernel of a name, and other code where it fails",
    responses=_IN_SESSION,
)
async def execute_in_session_with_retry(name: str, body: RetryExecute, request: Request) -> Response:
    kernels = kernels_of(request, "run")
    return await _retry(request, body, lambda: kernels.use(name))


async def _execute(request: Request, body: Execute, find: FindKernel) -> Response:
    executions = state_of(request).executions
    kernel = await find()
    result = await run_attended(request, executions.run(kernel, cell_of(body)))
    return JsonAnswer(describe_result(result))


async def _retry(request: Request, body: RetryExecute, find: FindKernel) -> Response:
    state = state_of(request)
    result = await run_attended(request, run_until_success(state, body, cell_of(body), find))
    return JsonAnswer(describe_result(result))


def cell_of(body: Execute) -> Cell:
    """Returns what a request wants run."""
    return Cell(
        code=body.code,
        language=body.language,
        timeout=body.timeout,
        approve=body.approve,
        output_char_limit=body.output_char_limit,
    )
