"""Routes for jobs: begin, list, look, follow, answer, cancel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from kernelbox.server.http._callers import Caller
from kernelbox.server.http._failures import RequestRefused
from kernelbox.server.http._long_json import cut
from kernelbox.server.jobs._answers import answer_with_json
from kernelbox.server.jobs._event_streams import EventStream
from kernelbox.server.jobs._job_service import Jobs, has_all_events
from kernelbox.server.routes._app_state import CheckedRoute, caller_of, needs, state_of
from kernelbox.server.routes._bodies import CONFLICT, FULL, NOT_FOUND, QUEUE_FULL
from kernelbox.server.routes._event_schema import STREAM
from kernelbox.server.routes._idempotent_jobs import Key, begin_cell, routers
from kernelbox.server.routes._models import (
    Answered,
    ApprovalAnswer,
    JobBegun,
    JobExecute,
    JobList,
    JobModel,
    JobStatus,
    StreamExecute,
)
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.wire._json import dump

router = APIRouter(route_class=CheckedRoute, tags=["Jobs"])
in_kernel, in_session = routers("Jobs")

_BEGUN = {**CONFLICT, **NOT_FOUND, **QUEUE_FULL, **FULL}
After = Annotated[int, Query(ge=0, le=2**53, description="the number of the last event that was seen")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="as `after`; browsers send it")]


@in_kernel.post("/jobs", status_code=202, summary="Run code as a job", responses=_BEGUN)
@in_session.post("/jobs", status_code=202, summary="Run code as a job in the kernel of a name", responses=_BEGUN)
@needs("run")
async def begin(body: JobExecute, request: Request, idempotency_key: Key = None) -> JobBegun:
    job_id = await begin_cell(request, body, idempotency_key)
    return JobBegun(id=job_id, events=f"/jobs/{job_id}/events")


@in_kernel.post("/stream", summary="Run code and follow its events", responses={**STREAM, **_BEGUN})
@in_session.post(
    "/stream", summary="Run code in the kernel of a name and follow its events", responses={**STREAM, **_BEGUN}
)
@needs("run")
async def stream(body: StreamExecute, request: Request, idempotency_key: Key = None) -> Response:
    job_id, jobs = await begin_cell(request, body, idempotency_key), state_of(request).jobs
    on_gone = None if body.on_disconnect == "continue" else lambda: jobs.cancel_here(job_id)
    return EventStream(jobs.events(job_id, 0), headers={"Location": f"/jobs/{job_id}"}, on_gone=on_gone)


# The same for requests that have nothing odd in them.
DIRECT = {
    "/kernels/{key}/stream": (stream, StreamExecute),
    "/sessions/{name}/stream": (stream, StreamExecute),
}


@router.get("/jobs", summary="List the jobs, oldest first", responses={200: {"model": JobList}})
@needs("read")
async def list_jobs(
    request: Request, kernel: Annotated[str | None, Query(description="only those in this kernel")] = None
) -> Response:
    caller, jobs = caller_of(request), state_of(request).jobs
    shown = [(record, describe(record, caller)) for record in await jobs.all(caller)]
    wanted = [each for each in shown if kernel in (None, each[1]["kernel"], each[1]["kernel_id"])]
    return StreamingResponse(_list(jobs, wanted), media_type="application/json")


@router.get("/jobs/{job_id}", summary="Look at a job", responses={200: {"model": JobStatus}, **CONFLICT, **NOT_FOUND})
@needs("read")
async def get_job(job_id: str, request: Request) -> Response:
    caller, jobs = caller_of(request), state_of(request).jobs
    record = await jobs.get(caller, job_id)
    approvals = await jobs.approvals(job_id) if record["state"] == "running" else []
    shown = {**describe(record, caller), "approvals": approvals}
    return answer_with_json(await in_thread(_with_result, shown, jobs, record))


@router.get(
    "/jobs/{job_id}/events",
    summary="Follow the events of a job",
    responses={**STREAM, 204: {"description": "the last event has been seen"}, **NOT_FOUND},
)
@needs("read")
async def follow_job(job_id: str, request: Request, after: After = 0, last_event_id: LastEventId = None) -> Response:
    caller, jobs = caller_of(request), state_of(request).jobs
    record = await jobs.get(caller, job_id)
    if last_event_id is not None and last_event_id.isdecimal() and len(last_event_id) < 16:
        after = int(last_event_id)
    if has_all_events(record, after):
        return Response(status_code=204)  # browsers would ask again and again, for any other answer
    return EventStream(jobs.events(job_id, after), headers={})


@router.post(
    "/jobs/{job_id}/cancel",
    summary="Stop a job; the kernel keeps its variables",
    responses={200: {"model": JobModel}, **CONFLICT, **NOT_FOUND},
)
@needs("run")
async def cancel_job(job_id: str, request: Request) -> Response:
    caller, state = caller_of(request), state_of(request)
    record = await state.jobs.get(caller, job_id)
    await state.jobs.cancel(record)
    with contextlib.suppress(RequestRefused):  # nothing is left of a job that had not begun
        record = await state.jobs.get(caller, job_id)
    return answer_with_json(await in_thread(_with_result, describe(record, caller), state.jobs, record))


@router.post(
    "/jobs/{job_id}/approvals/{request_id}", summary="Answer an approval request", responses={**NOT_FOUND, **CONFLICT}
)
@needs("answer")
async def answer_approval(job_id: str, request_id: str, body: ApprovalAnswer, request: Request) -> Answered:
    caller, jobs = caller_of(request), state_of(request).jobs
    await jobs.answer(await jobs.get(caller, job_id), request_id, body.model_dump())
    return Answered(accepted=body.accept)


def describe(record: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """Returns a job as answers have it, but for its result."""
    described = {name: record.get(name) for name in JobModel.model_fields if name != "result"}
    if isinstance(described["kernel"], str):
        described["kernel"] = described["kernel"].removeprefix(caller.prefix)
    return described


def _with_result(described: dict[str, Any], jobs: Jobs, record: dict[str, Any]) -> bytes:
    """Returns a job as JSON. Its result is JSON already, and may be long: no one reads it on the way."""
    result = jobs.read_result(record)
    return b"".join((dump(described)[:-1], b',"result":', b"null" if result is None else result, b"}"))


def _list(jobs: Jobs, wanted: list[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[bytes]:
    """Yields a list of jobs, of which one at a time is in memory; those that cannot be read are left out."""
    yield b'{"jobs":['
    before = b""
    for record, described in wanted:
        with contextlib.suppress(RequestRefused):
            yield from cut(b"".join((before, _with_result(described, jobs, record))))
            before = b","
    yield b"]}"
