"""Running code until it succeeds, with the replacements that a request brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelbox.base._errors import KernelNotFound
from kernelbox.core._kernel import Kernel
from kernelbox.server.routes._app_state import AppState
from kernelbox.server.routes._models import RetryExecute
from kernelbox.server.routes._starting_jobs import FindKernel, options_of
from kernelbox.wire._results import ExecutionResult

if TYPE_CHECKING:
    from kernelbox.server.jobs._running_job import OnBegin
    from kernelbox.shells._asyncio_cell import OnEvent


async def run_until_success(
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


async def _can_go_on(state: AppState, kernel: Kernel) -> bool:
    """Starts a dead kernel anew; returns False if it has been destroyed."""
    try:
        record = await state.kernels.get(kernel.record.kernel_id)
        if not record.alive:
            await state.kernels.restart(record.kernel_id)
    except KernelNotFound:
        return False
    return True
