"""Running a cell for a tool call: begun, or found again when the client comes back with answers.

While a call waits for its job, it reports progress and asks for approvals.
"""

from __future__ import annotations

import asyncio
import math
from typing import Literal

import anyio
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, InputRequiredResult

from kernelbox.mcp.toolsets._elicitation import ask, can_be_shown, job_of, questions, refuse, take_answers, way_to_ask
from kernelbox.mcp.toolsets._tool_results import answer, fit, shape
from kernelbox.mcp.toolsets._tool_state import ToolState
from kernelbox.shells._asyncio_cell_job import CellJob

# Seconds that a job in the background may go on when no call asks for it: a client that has gone leaves nothing.
_LEASH = 3600.0

# Seconds between progress messages; clients give up after a minute without any.
_PROGRESS_EVERY = 2.0

# Characters of the last line that a cell has written, in a message about its progress.
_LONGEST_MESSAGE = 200

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


async def wait_for(state: ToolState, job: CellJob, ctx: Context, seconds: float) -> InputRequiredResult | None:
    """Waits for a job in the background; a call that is cancelled leaves it running."""
    await take_answers(ctx, job)
    return await _attend(state, job, ctx, seconds, _LEASH)


async def _attend(
    state: ToolState, job: CellJob, ctx: Context, seconds: float | None, leash: float
) -> InputRequiredResult | None:
    """Waits until a job is done or the seconds have passed; returns what the client must ask first, if it must.

    `leash` is how many seconds the job may go on when no call waits for it.
    """
    may_ask = state.options.approve != "none"
    until = math.inf if seconds is None else anyio.current_time() + seconds
    way = way_to_ask(ctx) if may_ask else "reject"
    asked: set[str] = set()
    with job.attended(leash):
        async with anyio.create_task_group() as asking:
            while not job.done and (left := until - anyio.current_time()) > 0:
                await job.wait(min(left, _PROGRESS_EVERY), seen=asked)
                new = [request for request in job.cell.open_requests() if request.id not in asked]
                shown = [request for request in new if way != "reject" and can_be_shown(request)]
                if shown and way == "return the questions":
                    return questions(ctx, job, shown)
                for request in new:
                    asked.add(request.id)
                    if request in shown:
                        asking.start_soon(ask, ctx, request)
                    else:
                        await refuse(ctx, request, switched_off=not may_ask)
                if not new and not job.done:
                    await _report(job, ctx, seconds)
            asking.cancel_scope.cancel()
    return None


async def _report(job: CellJob, ctx: Context, seconds: float | None) -> None:
    last_line = job.cell.text[-_LONGEST_MESSAGE:].rpartition("\n")[2]
    await ctx.report_progress(job.cell.seconds, seconds, job.notice[:_LONGEST_MESSAGE] or last_line or "running")


async def conclude(state: ToolState, job: CellJob, budget: int, *, paths: bool = False) -> CallToolResult:
    """Returns the text about a job: its result, or what it has written so far and its handle."""
    if not job.done:
        handle = (
            f"[still running after {job.cell.seconds:.0f} s as job {job.id}; the tool `job` waits for it or cancels it]"
        )
        text = fit(job.cell.text, state.outputs, budget - len(handle) - 1)
        return answer(f"{text}\n{handle}" if text else handle)
    result = job.result
    if result.ending == "died":
        await state.workplace.report_death(job)
    return await shape(result, state.outputs, budget, paths=paths, plain=state.options.plain)
