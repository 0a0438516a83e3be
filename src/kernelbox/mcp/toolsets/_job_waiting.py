"""Waiting for a job on behalf of a client: progress while it runs, and approvals as they come up."""

from __future__ import annotations

import math

import anyio
from mcp.server.mcpserver import Context
from mcp_types import InputRequiredResult

from kernelbox.mcp.toolsets._elicitation import ask, questions, refuse, way_to_ask
from kernelbox.shells._asyncio_jobs import Job

# Seconds between progress messages; clients give up after a minute without any.
_PROGRESS_EVERY = 2.0

# Characters of the last line that a cell has written, in a message about its progress.
_LONGEST_MESSAGE = 200


async def attend(
    job: Job, ctx: Context, *, seconds: float | None, leash: float, may_ask: bool
) -> InputRequiredResult | None:
    """Waits until a job is done or the seconds have passed; returns what the client must ask first, if it must.

    `leash` is how many seconds the job may go on when no call waits for it. Without `may_ask` approvals are refused.
    """
    until = math.inf if seconds is None else anyio.current_time() + seconds
    way = way_to_ask(ctx) if may_ask else "reject"
    asked: set[str] = set()
    with job.attended(leash):
        async with anyio.create_task_group() as asking:
            while not job.done and (left := until - anyio.current_time()) > 0:
                await job.wait(min(left, _PROGRESS_EVERY), seen=asked)
                new = [request for request in job.cell.open_requests() if request.id not in asked]
                if new and way == "return the questions":
                    return questions(ctx, job, new)
                for request in new:
                    asked.add(request.id)
                    if way == "ask in the call":
                        asking.start_soon(ask, ctx, request)
                    else:
                        await refuse(ctx, request, switched_off=not may_ask)
                if not new and not job.done:
                    await _report(job, ctx, seconds)
            asking.cancel_scope.cancel()
    return None


async def _report(job: Job, ctx: Context, seconds: float | None) -> None:
    last_line = job.cell.text[-_LONGEST_MESSAGE:].rpartition("\n")[2]
    await ctx.report_progress(job.cell.seconds, seconds, job.notice[:_LONGEST_MESSAGE] or last_line or "running")
