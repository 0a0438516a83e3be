"""Jobs: executions that continue whether their caller waits or not, and that every server on the home can report."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernelbox.base._errors import StoreFailed
from kernelbox.host.store._job_entry import JobEntry
from kernelbox.host.store._job_journal import Journal
from kernelbox.host.store._record import now
from kernelbox.server.http._callers import Caller
from kernelbox.server.http._failures import RequestRefused
from kernelbox.server.jobs._running_job import LOOK_EVERY, RunningJob, approval_closed
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.wire._json import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.server.jobs._running_job import Work

    Event = tuple[int, str, bytes | bytearray]

# The kinds of events that no other follows.
_LAST = ("result", "failed", "lost")

# The number of an event `lost`, which is in no journal and is always the last. A client that has seen it gets no more
# events: `EventSource` reconnects after every end of a stream, until it is answered 204.
_END = 10**15 - 1

# Why no more events can come.
_DAMAGED = "code of this user has overwritten the events; GET /jobs/ID has the outcome of the job"
_GONE = "this job is not known any more: it ended long ago, or its result could not be written"
_MISSING = "the events after this one are gone; GET /jobs/ID has the outcome of the job"
_OVER = "all events have been sent"
_STARTING = "another server is starting the kernel of this job; try again when the job has begun, or there"
LOST = "the server that ran this has ended; it is not known how far the cell got"

# Why a job cannot be read.
_NO_RECORD = "the record of the job with this Idempotency-Key is damaged, or did not fit on the disk; use another key"
_NO_RESULT = (
    "this result cannot be read: code of this user has changed it, or another version of kernelbox has written it"
)

# Seconds that another server may take to act on an answer.
_ANSWER_PATIENCE = 10.0

# What the ids of jobs and of approval requests look like.
_is_id = re.compile("[0-9a-f]{32}").fullmatch
_is_request_id = re.compile("[0-9a-f-]{1,100}").fullmatch

# Threads that write the journal. They are not those that serve other requests, so a disk that hangs holds up only jobs.
_WRITERS = 4

# How often to try again if another server removes a job between two steps.
_ATTEMPTS = 10

# Looking for old jobs reads a thousand files. It takes this part of the time at most.
_SWEEP_SHARE = 0.02


class Jobs:
    """The jobs of a home; those in `_mine` are run by this process."""

    def __init__(self, journal: Journal, kernels: AsyncKernels) -> None:
        self._journal = journal
        self._kernels = kernels
        self._mine: dict[str, RunningJob] = {}
        self._threads = ThreadPoolExecutor(_WRITERS, "journal")
        self._sweep_due = 0.0
        self._sweeping: asyncio.Task[None] | None = None

    async def begin(self, caller: Caller, about: dict[str, Any], work: Work, *, key: str | None = None) -> str:
        """Begins a job and returns its id, once its kernel has the cell; raises what prevented that.

        With a key, an earlier job with the same key is returned; raises RequestRefused if that one was asked for
        something else.
        """
        job_id = os.urandom(16).hex() if key is None else _id_of(caller, key)
        for _ in range(_ATTEMPTS):
            record = {"id": job_id, "state": "running", "caller": caller.name, "created_at": now(), **about}
            claim = self._journal.claim
            entry = await in_thread(claim, job_id, record, undo=self._give_back, pool=self._threads)
            if entry is not None:
                return await self._start(entry, record, work)
            if await self._has_begun(job_id, about):
                return job_id
        raise RequestRefused(409, "job_damaged", _NO_RECORD)

    def _give_back(self, entry: JobEntry | None) -> None:
        """Removes a job whose caller has stopped to wait before it began."""
        if entry is not None:
            self._journal.withdraw(entry)

    async def _has_begun(self, job_id: str, about: dict[str, Any]) -> bool:
        """Waits until the kernel of a job that has the same key has its cell; False if it was refused meanwhile."""
        while (found := await in_thread(self._journal.read, job_id)) is not None:
            if found.get("fingerprint") != about["fingerprint"]:
                raise RequestRefused(
                    409, "idempotency_key_reused", "this Idempotency-Key came with another request before"
                )
            if found["state"] != "running" or "execution_id" in found:
                return True
            if (running := self._mine.get(job_id)) is not None:
                await running.until_begun()  # or until it is refused, which both requests are then
                return True
            await asyncio.sleep(LOOK_EVERY)  # it is about to be ours, or another server's
        return False

    async def _start(self, entry: JobEntry, record: dict[str, Any], work: Work) -> str:
        running = RunningJob(entry, record, self._journal, work, threads=self._threads)
        self._mine[entry.id] = running
        running.task.add_done_callback(lambda _: self._forget(entry.id, running))
        if self._sweeping is None and time.monotonic() >= self._sweep_due:
            self._sweeping = asyncio.ensure_future(self._sweep())
        await running.until_begun()
        return entry.id

    def _forget(self, job_id: str, ended: RunningJob) -> None:
        if self._mine.get(job_id) is ended:  # another with the same key may have followed one that was refused
            del self._mine[job_id]

    async def _sweep(self) -> None:
        try:
            began = time.monotonic()
            await in_thread(self._journal.sweep)
            self._sweep_due = time.monotonic() + (time.monotonic() - began) / _SWEEP_SHARE
        finally:
            self._sweeping = None

    async def settle(self) -> None:
        """Waits until the results of the jobs of this process are written."""
        tasks = [running.task for running in self._mine.values()]
        if self._sweeping is not None:
            tasks.append(self._sweeping)
        if tasks:
            await asyncio.wait(tasks)

    # -- looking ---------------------------------------------------------------------------------------------

    async def get(self, caller: Caller, job_id: str) -> dict[str, Any]:
        """Returns the record of a job of one caller; raises RequestRefused if there is none."""
        running = self._mine.get(job_id)
        record = running.record if running is not None else None
        if record is None and _is_id(job_id):
            record = await in_thread(self._journal.read, job_id)
        if record is None or (caller.name and record.get("caller") != caller.name):
            raise RequestRefused(404, "job_not_found", f"there is no job {job_id[:64]!r}; it may have ended long ago")
        return record

    async def all(self, caller: Caller) -> list[dict[str, Any]]:
        """Returns the records of the jobs of one caller, oldest first."""
        found = await in_thread(self._journal.records)
        records = [self._mine[record["id"]].record if record["id"] in self._mine else record for record in found]
        return [record for record in records if not caller.name or record.get("caller") == caller.name]

    async def events(self, job_id: str, after: int) -> AsyncGenerator[Event]:
        """Yields the events of a job after one, by number, kind and JSON, as they come, until the last."""
        if after >= _END:
            return
        follower, end = self._journal.follow(job_id, after), ""
        running = self._mine.get(job_id)
        try:
            while True:
                found: Sequence[Event] = [] if running is None else running.writer.recent(follower.after)
                is_behind = False
                if found:
                    follower.after = found[-1][0]
                elif not self._has_no_more(job_id, follower.after):
                    found = follower.read()
                    is_behind = follower.is_behind
                for number, kind, event in found:
                    yield number, kind, event
                    if kind in _LAST:
                        return
                if is_behind:
                    await asyncio.sleep(0)  # there may be megabytes more, and others are served too
                    continue
                if end == _OVER:
                    return
                if end or follower.is_damaged:
                    yield _END, "lost", dump({"detail": end or _DAMAGED})
                    return
                end = await self._wait(job_id, follower.after)
        finally:
            follower.close()

    def _has_no_more(self, job_id: str, after: int) -> bool:
        """Tells whether a job that runs here has no event yet after one."""
        running = self._mine.get(job_id)
        return running is not None and running.writer.last <= after and not running.task.done()

    async def _wait(self, job_id: str, after: int) -> str:
        """Waits for another event; returns why no more can come, after those that have just been written."""
        if self._has_no_more(job_id, after):
            await self._mine[job_id].until_event(after)
            return ""
        try:
            record = await in_thread(self._journal.read, job_id)
        except StoreFailed:  # no file can be opened at the moment
            await asyncio.sleep(LOOK_EVERY)
            return ""
        if record is None:
            return _GONE
        if record["state"] == "lost":
            return LOST
        if record["state"] == "done":
            return _OVER if has_all_events(record, after) else _MISSING
        await asyncio.sleep(LOOK_EVERY)  # another server runs it, or its events have been deleted
        return ""

    async def result(self, job_id: str) -> tuple[dict[str, Any], bytes | None] | None:
        """Returns the record of a job once it has ended, and its result; None if it was refused, and nothing is left.

        Raises RequestRefused if the result cannot be read.
        """
        while (running := self._mine.get(job_id)) is not None:
            await asyncio.wait({running.task})
            if running.outcome is not None:
                return running.outcome, running.result
        while True:
            record = await in_thread(self._journal.read, job_id)
            if record is None:
                return None
            if record["state"] != "running":
                return record, await in_thread(self.read_result, record)
            await asyncio.sleep(LOOK_EVERY)

    def read_result(self, record: dict[str, Any]) -> bytes | None:
        """Returns the result of a job as JSON, which may have megabytes; None if there is none.

        Raises RequestRefused if it cannot be read.
        """
        if record["state"] != "done" or "failed" in record:
            return None
        result = self._journal.read_result(str(record["id"]))
        if result is None:
            raise RequestRefused(409, "job_damaged", _NO_RESULT)
        return result

    # -- acting ----------------------------------------------------------------------------------------------

    async def cancel(self, record: dict[str, Any]) -> None:
        """Begins to stop a job, whichever server runs it; raises RequestRefused if another has not begun to run it."""
        running = self._mine.get(str(record["id"]))
        if running is not None:
            running.cancel()
        elif record["state"] == "running" and "execution_id" in record:
            await self._kernels.interrupt_execution(str(record["kernel_id"]), str(record["execution_id"]))
        elif record["state"] == "running":
            raise RequestRefused(409, "job_starting", _STARTING, {"Retry-After": "1"})

    def cancel_here(self, job_id: str) -> None:
        """Begins to stop a job that this process runs."""
        if (running := self._mine.get(job_id)) is not None:
            running.cancel()

    async def approvals(self, job_id: str) -> list[dict[str, Any]]:
        """Returns the approval requests of a job that wait for an answer."""
        running = self._mine.get(job_id)
        return await in_thread(self._read_approvals, job_id) if running is None else running.approvals()

    def _read_approvals(self, job_id: str) -> list[dict[str, Any]]:
        """Returns those of a job that another server runs."""
        waiting: dict[str, dict[str, Any]] = {}
        with contextlib.closing(self._journal.follow(job_id, 0)) as follower:
            while (found := follower.read()) or follower.is_behind:
                for _, kind, event in found:
                    if kind == "approval":
                        request = json.loads(event)
                        waiting[request["id"]] = request
                    elif kind == "decision":
                        waiting.pop(json.loads(event)["id"], None)
        return list(waiting.values())

    async def answer(self, record: dict[str, Any], request_id: str, answer: dict[str, Any]) -> None:
        """Answers an approval request of a job; raises ApprovalClosed if it does not wait for an answer."""
        job_id = str(record["id"])
        running = self._mine.get(job_id)
        if running is not None:
            await running.answer(request_id, answer)
            return
        if record["state"] != "running" or not _is_request_id(request_id):
            raise approval_closed(request_id)
        if not await in_thread(self._journal.answer, job_id, request_id, answer):
            raise approval_closed(request_id, "answered")
        await self._until_decided(job_id, request_id)

    async def _until_decided(self, job_id: str, request_id: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_PATIENCE):
                async with contextlib.aclosing(self.events(job_id, 0)) as events:
                    async for _, kind, event in events:
                        if kind == "decision" and json.loads(event)["id"] == request_id:
                            return
        raise approval_closed(request_id)


def has_all_events(record: dict[str, Any], after: int) -> bool:
    """Returns whether an event of a job is its last."""
    return bool(after >= _END or (record["state"] == "done" and after >= record.get("last", 0)))


def fingerprint(path: str, body: str) -> str:
    """Returns what tells one request from another."""
    return hashlib.sha256(f"{path}\n{body}".encode("utf-8", "surrogatepass")).hexdigest()


def _id_of(caller: Caller, key: str) -> str:
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]
