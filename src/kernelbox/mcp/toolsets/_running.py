"""Running a cell for a tool call: begun, or found again when the client comes back with answers."""

from __future__ import annotations

import asyncio
from typing import Literal

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, InputRequiredResult

from kernelbox.mcp.toolsets._elicitation import job_of, take_answers
from kernelbox.mcp.toolsets._job_waiting import attend
from kernelbox.mcp.toolsets._tool_results import answer, fit, shape
from kernelbox.mcp.toolsets._tool_state import ToolState
from kernelbox.shells._asyncio_jobs import Job

# Seconds that a job in the background may go on when no call asks for it: a client that has gone leaves nothing.
_LEASH = 3600.0

# Seconds beyond the patience of a question in which the client may come back with the answer.
_RETURN = 10.0


async def run_cell(
    state: ToolState,
    ctx: Context,
    code: str,
    *,
    kernel: str,
    language: str = "python",
    seconds: float,
    budget: int,
    on_timeout: Literal["interrupt", "background"] = "interrupt",
    paths: bool = False,
) -> CallToolResult | InputRequiredResult:
    """Runs code and returns what a model reads of it; cancelling the call interrupts the cell."""
    background = on_timeout == "background"
    if (job_id := job_of(ctx)) is not None:
        job = state.workplace.job(job_id)
        await take_answers(ctx, job)
    else:
        job = await state.workplace.begin(kernel, code, language=language, timeout=None if background else seconds)
    leash = _LEASH if background else state.options.approval_timeout + _RETURN
    try:
        asked = await _attend(state, job, ctx, seconds if background else None, leash)
    except asyncio.CancelledError:
        job.cancel()
        raise
    return asked or await conclude(state, job, budget, paths=paths)


async def wait_for(state: ToolState, job: Job, ctx: Context, seconds: float) -> InputRequiredResult | None:
    """Waits for a job in the background; a call that is cancelled leaves it running."""
    await take_answers(ctx, job)
    return await _attend(state, job, ctx, seconds, _LEASH)


async def _attend(
    state: ToolState, job: Job, ctx: Context, seconds: float | None, leash: float
) -> InputRequiredResult | None:
    return await attend(job, ctx, seconds=seconds, leash=leash, may_ask=state.options.approve != "none")


async def conclude(state: ToolState, job: Job, budget: int, *, paths: bool = False) -> CallToolResult:
    """Returns what there is to read of a job: its result, or what it has written so far and its handle."""
    if not job.done:
        handle = (
            f"[still running after {job.cell.seconds:.0f} s as job {job.id}; the tool `job` waits for it or cancels it]"
        )
        text = fit(job.cell.text, state.outputs, budget - len(handle) - 1)
        return answer(f"{text}\n{handle}" if text else handle)
    result = job.result
    if result.ending == "died":
        await state.workplace.report_death(job)
    return await shape(result, state.outputs, budget, paths=paths)
