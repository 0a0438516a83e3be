"""Jobs: executions that go on whether their caller waits or not, and that every server on the home can tell of."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from kernelbox.base._errors import ApprovalClosed, KernelBoxError
from kernelbox.core._requests import ApprovalRequest
from kernelbox.core._tool_events import ToolEvent
from kernelbox.host._journal import Entry, Journal
from kernelbox.host._record import now
from kernelbox.server._answers import describe_result, image_address, to_json
from kernelbox.server._errors import Refused, describe_failure
from kernelbox.server._tokens import Caller
from kernelbox.shells._asyncio_jobs import Job
from kernelbox.shells._loop_connection import in_thread
from kernelbox.shells._loop_kernels import LoopKernels
from kernelbox.wire._results import ExecutionResult, OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.shells._asyncio_jobs import Watch

    Work = Callable[[Watch, Callable[[Job], None]], Coroutine[Any, Any, ExecutionResult]]

_log = logging.getLogger("kernelbox.server")

# The kinds of events that no other follows.
LAST = ("result", "failed", "lost")

# Seconds between looks for what another server writes: a person does not notice, and a disk neither.
_LOOK_EVERY = 0.05

# Seconds that another server may take to act on an answer.
_ANSWER_PATIENCE = 10.0

# Another server may remove a job between two steps of ours; not again and again.
_ATTEMPTS = 10

# Old jobs are looked for each time that this many have begun.
_SWEEP_EVERY = 50


class Jobs:
    """The jobs of a home; those in `_mine` are run by this process."""

    def __init__(self, journal: Journal, kernels: LoopKernels) -> None:
        self._journal = journal
        self._kernels = kernels
        self._mine: dict[str, RunningJob] = {}
        self._begun = 0

    def __repr__(self) -> str:
        return f"<Jobs {len(self._mine)} running here>"

    async def begin(self, caller: Caller, about: dict[str, Any], work: Work, *, key: str | None = None) -> str:
        """Begins a job and returns its id, once its kernel has the cell; raises what keeps it from that.

        With a key, the job that began with the same key is returned, if there is one; raises Refused if that one was
        asked for something else.
        """
        job_id = os.urandom(16).hex() if key is None else _id_of(caller, key)
        for _ in range(_ATTEMPTS):
            entry = await in_thread(self._journal.claim, job_id, self._new_record(job_id, caller, about))
            if entry is not None:
                return await self._start(entry, caller, about, work)
            found = await in_thread(self._journal.read, job_id)
            if found is not None:
                same = self._same(found, about)
                if (running := self._mine.get(same)) is not None:
                    await running.until_begun()  # or until it is refused, which both requests are then
                return same
        raise Refused(
            409, "job_damaged", "what is known of the job of this Idempotency-Key is damaged; use another key"
        )

    def _new_record(self, job_id: str, caller: Caller, about: dict[str, Any]) -> dict[str, Any]:
        return {"id": job_id, "state": "running", "caller": caller.name, "created_at": now(), **about}

    def _same(self, found: dict[str, Any], about: dict[str, Any]) -> str:
        if found.get("fingerprint") != about["fingerprint"]:
            raise Refused(409, "idempotency_key_reused", "this Idempotency-Key came with another request before")
        return str(found["id"])

    async def _start(self, entry: Entry, caller: Caller, about: dict[str, Any], work: Work) -> str:
        running = RunningJob(entry, self._new_record(entry.id, caller, about), self._journal, work)
        self._mine[entry.id] = running
        running.task.add_done_callback(lambda _: self._mine.pop(entry.id, None))
        self._begun += 1
        if self._begun % _SWEEP_EVERY == 0:
            await in_thread(self._journal.sweep)
        await running.until_begun()
        return entry.id

    async def settle(self) -> None:
        """Waits until what came of the jobs of this process is written."""
        if self._mine:
            await asyncio.wait([running.task for running in self._mine.values()])

    # -- looking ---------------------------------------------------------------------------------------------

    async def get(self, caller: Caller, job_id: str) -> dict[str, Any]:
        """Returns the record of a job of a caller's; raises Refused if there is none."""
        record = await in_thread(self._journal.read, job_id) if _is_id(job_id) else None
        if record is None or (caller.name and record.get("caller") != caller.name):
            raise Refused(404, "job_not_found", f"there is no job {job_id[:64]!r}; it may have ended long ago")
        return record

    async def all(self, caller: Caller) -> list[dict[str, Any]]:
        """Returns the records of the jobs of a caller's, oldest first."""
        records = await in_thread(self._journal.records)
        return [record for record in records if not caller.name or record.get("caller") == caller.name]

    async def events(self, job_id: str, after: int) -> AsyncIterator[tuple[int, str, bytes]]:
        """Yields the events of a job after one, by number, kind and JSON, as they come, until the last."""
        follower, end = self._journal.follow(job_id, after), ""
        try:
            while True:
                found = follower.read()
                for number, kind, event in found:
                    yield number, kind, event
                    if kind in LAST:
                        return
                if not found and (end or follower.is_damaged):
                    yield follower.after + 1, "lost", to_json({"detail": end or DAMAGED})
                    return
                end = "" if found else await self._wait(job_id, follower.after)
        finally:
            follower.close()

    async def _wait(self, job_id: str, after: int) -> str:
        """Waits for another event; returns why none can come any more, after those that have just been written."""
        running = self._mine.get(job_id)
        if running is not None and running.last <= after and not running.task.done():
            await running.until_event(after)
            return ""
        record = await in_thread(self._journal.read, job_id)
        if record is None:
            return _GONE
        if record["state"] == "lost":
            return LOST
        if record["state"] == "done":
            return "there is no event after this one"
        await asyncio.sleep(_LOOK_EVERY)  # another server runs it, or its events have been deleted
        return ""

    async def result(self, job_id: str) -> dict[str, Any] | None:
        """Returns the record of a job once it has ended; None if it was refused, and nothing is left of it."""
        while (running := self._mine.get(job_id)) is not None:
            await asyncio.wait({running.task})
            if running.outcome is not None:
                return running.outcome
        while True:
            record = await in_thread(self._journal.read, job_id)
            if record is None or record["state"] != "running":
                return record
            await asyncio.sleep(_LOOK_EVERY)

    # -- acting ----------------------------------------------------------------------------------------------

    async def cancel(self, record: dict[str, Any]) -> None:
        """Begins to stop a job, whichever server runs it."""
        running = self._mine.get(str(record["id"]))
        if running is not None:
            running.cancel()
        elif record["state"] == "running" and (execution := await in_thread(self._execution_of, record)):
            await self._kernels.interrupt_execution(str(record["kernel_id"]), execution)

    def _execution_of(self, record: dict[str, Any]) -> str | None:
        """Returns which execution another server runs for a job now."""
        started = [event for kind, event in self._events_so_far(str(record["id"])) if kind == "started"]
        return str(started[-1]["execution_id"]) if started else None

    def cancel_here(self, job_id: str) -> None:
        """Begins to stop a job that this process runs."""
        if (running := self._mine.get(job_id)) is not None:
            running.cancel()

    async def approvals(self, job_id: str) -> list[dict[str, Any]]:
        """Returns the approval requests of a job that wait for an answer."""
        return await in_thread(self._approvals, job_id)

    def _approvals(self, job_id: str) -> list[dict[str, Any]]:
        waiting: dict[str, dict[str, Any]] = {}
        for kind, event in self._events_so_far(job_id):
            if kind == "approval":
                waiting[event["id"]] = event
            elif kind == "decision":
                waiting.pop(event["id"], None)
        return list(waiting.values())

    def _events_so_far(self, job_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the events that are about the job itself, not what its cell writes."""
        follower = self._journal.follow(job_id, 0)
        try:
            while found := follower.read():
                yield from ((kind, json.loads(event)) for _, kind, event in found if kind != "output")
        finally:
            follower.close()

    async def answer(self, record: dict[str, Any], request_id: str, answer: dict[str, Any]) -> None:
        """Answers an approval request of a job; raises ApprovalClosed if it is none that waits."""
        job_id = str(record["id"])
        running = self._mine.get(job_id)
        if running is not None:
            await running.answer(request_id, answer)
            return
        if record["state"] != "running" or not _is_request_id(request_id):
            raise ApprovalClosed(f"the request {request_id[:64]!r}", "closed")
        if not await in_thread(self._journal.answer, job_id, request_id, answer):
            raise ApprovalClosed(f"the request {request_id[:64]!r}", "answered")
        await self._until_decided(job_id, request_id)

    async def _until_decided(self, job_id: str, request_id: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_PATIENCE):
                async for _, kind, event in self.events(job_id, 0):
                    if kind == "decision" and json.loads(event)["id"] == request_id:
                        return
        raise ApprovalClosed(f"the request {request_id[:64]!r}", "closed")


DAMAGED = "code of this user has written over the events; GET /jobs/ID has what came of the job"
_GONE = "nothing is known of this job any more: it ended long ago, or what came of it could not be written"
LOST = "the server that ran this has ended; how far the cell came is not known"


class RunningJob:
    """A job of this process: drives its work, and writes down what comes of it."""

    def __init__(self, entry: Entry, record: dict[str, Any], journal: Journal, work: Work) -> None:
        self._entry = entry
        self._record = record
        self._journal = journal
        self._job: Job | None = None
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._is_written = True
        self.outcome: dict[str, Any] | None = None
        self.task = asyncio.ensure_future(self._drive(work))
        self.task.add_done_callback(lambda _: self._announce())

    def __repr__(self) -> str:
        return f"<RunningJob {self._entry.id}>"

    async def until_begun(self) -> None:
        """Waits until the kernel has the cell; raises what kept it from that, when nothing is left of the job."""
        await asyncio.shield(self._begun)

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._entry.last

    async def until_event(self, after: int) -> None:
        """Waits until there is an event after one."""
        while self._entry.last <= after and not self.task.done():
            news = self._news
            await news.wait()

    def cancel(self) -> None:
        """Begins to stop the cell."""
        if self._job is not None:
            self._job.cancel()

    async def answer(self, request_id: str, answer: dict[str, Any]) -> None:
        """Answers an approval request; raises ApprovalClosed, and InvalidInput for an answer that is none."""
        request = self._job.requests.get(request_id) if self._job is not None else None
        if request is None:
            raise ApprovalClosed(f"the request {request_id[:64]!r}", "closed")
        if answer.get("accept") is True:
            await request.accept(remember=answer.get("remember"))
        else:
            await request.reject(answer.get("reason"))

    async def _drive(self, work: Work) -> None:
        try:
            result = await work(self._watch, self._on_begin)
        except (KernelBoxError, Refused) as exc:
            if not self._begun.done():
                await in_thread(self._entry.discard)
                self._begun.set_exception(exc)
                return
            await self._end("failed", describe_failure(exc))
        except BaseException:
            await self._end("failed", describe_failure(None))
            raise
        else:
            await self._end("result", describe_result(result))
        finally:
            if self._looking is not None:
                self._looking.cancel()
            if not self._begun.done():
                self._begun.set_result(None)

    async def _end(self, kind: str, outcome: dict[str, Any]) -> None:
        self._append(kind, {"result": outcome} if kind == "result" else outcome)
        done = {"state": "done", "ended_at": now(), "last": self._entry.last, kind: outcome}
        self.outcome = {**self._record, **done}
        try:
            await in_thread(self._entry.finish, self.outcome)
        except OSError as exc:
            self._note_failure(exc)
            await in_thread(self._entry.give_up)  # no client must wait for what cannot be told

    def _on_begin(self, job: Job) -> None:
        self._job = job
        self._append("started", {"job_id": self._entry.id, "execution_id": job.execution_id})
        if not self._begun.done():
            self._record |= {"kernel_id": job.kernel_id, "kernel": job.kernel_name}
            try:
                self._entry.update(self._record)
            except OSError as exc:
                self._note_failure(exc)
            self._begun.set_result(None)

    def _watch(self, event: OutputItem | ToolEvent | ApprovalRequest, image: str | None) -> None:
        match event:
            case OutputItem():
                shown = {**event.to_dict(), "display_id": event.display_id}
                self._append("output", {**shown, "image": None if image is None else image_address(image)})
            case ToolEvent():
                names = ("kind", "server_name", "tool_name", "text", "progress", "total", "level")
                self._append("tool", {name: getattr(event, name) for name in names})
            case ApprovalRequest():
                self._append("approval", describe_request(event))
                event.on_decision(lambda accepted: self._on_decision(event))
                if self._looking is None:
                    self._looking = asyncio.ensure_future(self._look_for_answers())

    def _on_decision(self, request: ApprovalRequest) -> None:
        assert request.verdict is not None
        verdict = {"accepted": request.verdict.accepted, "reason": request.verdict.reason}
        self._append("decision", {"id": request.id, **verdict})

    async def _look_for_answers(self) -> None:
        """Takes the answers that came to other servers, for as long as there is a question."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._job is None or not self._job.open_requests():
                continue
            for request_id, answer in await in_thread(lambda: list(self._journal.answers(self._entry.id))):
                with contextlib.suppress(KernelBoxError):
                    await self.answer(request_id, answer)

    def _append(self, kind: str, event: dict[str, Any]) -> None:
        """Writes an event; where that cannot be done the cell goes on all the same, and followers miss the event."""
        try:
            self._entry.append(kind, to_json(event))
        except OSError as exc:
            self._note_failure(exc)
        self._announce()

    def _note_failure(self, exc: OSError) -> None:
        if self._is_written:
            self._is_written = False
            _log.error("of job %s not all can be written: %s", self._entry.id, exc)

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def describe_request(request: ApprovalRequest) -> dict[str, Any]:
    """Returns an approval request as events have it; `call` shows it on one line, for people."""
    names = ("id", "server_name", "tool_name", "tool_args")
    return {**{name: getattr(request, name) for name in names}, "call": str(request)}


def fingerprint(path: str, body: str) -> str:
    """Returns what tells one request from another."""
    return hashlib.sha256(f"{path}\n{body}".encode("utf-8", "surrogatepass")).hexdigest()


def _id_of(caller: Caller, key: str) -> str:
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def _is_id(text: str) -> bool:
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


def _is_request_id(text: str) -> bool:
    return 0 < len(text) <= 100 and set(text) <= set("0123456789abcdef-")
