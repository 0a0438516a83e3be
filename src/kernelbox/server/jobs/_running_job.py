"""A job that this process runs: its work is driven to the end, and its events and result go into the journal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from kernelbox.base._errors import ApprovalClosed, KernelBoxError
from kernelbox.core._executor_values import ToolEvent
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.host.store._job_entry import RESULT, JobEntry
from kernelbox.host.store._job_journal import Journal
from kernelbox.host.store._record import now
from kernelbox.server.http._callers import Caller
from kernelbox.server.http._failures import RequestRefused, describe_failure
from kernelbox.server.jobs._answers import encode_result, image_address
from kernelbox.server.jobs._job_writer import JobWriter
from kernelbox.shells._asyncio_cell import CellOutput
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.wire._json import dump
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kernelbox.shells._asyncio_cell import AsyncCell, CellEvent, OnEvent

    OnBegin = Callable[[AsyncCell], None]
    Work = Callable[[OnEvent, OnBegin], Coroutine[Any, Any, ExecutionResult]]

# Seconds between looks for what another server writes: a person does not notice, and a disk neither.
LOOK_EVERY = 0.05


class RunningJob:
    """A job of this process: drives its work, and writes its events and its result."""

    def __init__(
        self,
        entry: JobEntry,
        record: dict[str, Any],
        journal: Journal,
        work: Work,
        *,
        threads: Executor | None = None,
    ) -> None:
        """The threads write the journal; without any, those of the event loop do."""
        self.record = record
        self._id, self._entry = entry.id, entry
        self.writer = JobWriter(entry, threads)
        self._journal = journal
        self._cell: AsyncCell | None = None
        self._is_cancelled = False
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.outcome: dict[str, Any] | None = None
        self.result: bytes | None = None
        self.task = asyncio.ensure_future(self._drive(work))
        self.task.add_done_callback(lambda _: self._announce())

    async def until_begun(self) -> None:
        """Waits until the kernel has the cell; raises what prevented that, once nothing is left of the job."""
        await asyncio.shield(self._begun)

    async def until_event(self, after: int) -> None:
        """Waits until there is an event after one."""
        while self.writer.last <= after and not self.task.done():
            news = self._news
            await news.wait()

    def cancel(self) -> None:
        """Begins to stop the cell, and any that would be run after it; a job that has not begun is refused."""
        self._is_cancelled = True
        if self._cell is not None:
            self._cell.cancel()
        elif not self.task.done():
            self.task.cancel()

    def approvals(self) -> list[dict[str, Any]]:
        """Returns the approval requests that wait for an answer."""
        return [] if self._cell is None else [describe_request(request) for request in self._cell.open_requests()]

    async def answer(self, request_id: str, answer: dict[str, Any]) -> None:
        """Answers an approval request; raises ApprovalClosed, and InvalidInput for an invalid answer."""
        request = self._cell.requests.get(request_id) if self._cell is not None else None
        if request is None:
            raise approval_closed(request_id)
        if answer.get("accept") is True:
            await request.accept(remember=answer.get("remember"))
        else:
            await request.reject(answer.get("reason"))

    async def _drive(self, work: Work) -> None:
        try:
            result = await self._run(work)
        except (KernelBoxError, RequestRefused) as exc:
            if not self._begun.done():
                await in_thread(self._journal.withdraw, self._entry)
                self._begun.set_exception(exc)
                return
            await self._fail(describe_failure(exc))
        except BaseException:
            await self._fail(describe_failure(None))
            raise
        else:
            self.result = await encode_result(result, Caller(self.record.get("caller", "")))
            await self._end("result", b"".join((RESULT, self.result, b"}")), {})
        finally:
            if self._looking is not None:
                self._looking.cancel()
            if not self._begun.done():
                self._begun.set_result(None)

    async def _run(self, work: Work) -> ExecutionResult:
        try:
            return await work(self._on_event, self._on_begin)
        except asyncio.CancelledError:
            if self._is_cancelled and self._cell is None:
                raise RequestRefused(
                    409, "job_cancelled", "the job was cancelled before its kernel had started"
                ) from None
            raise

    async def _fail(self, failure: dict[str, Any]) -> None:
        await self._end("failed", dump(failure), {"failed": failure})

    async def _end(self, kind: str, event: bytes, how: dict[str, Any]) -> None:
        self.outcome = {**self.record, "state": "done", "ended_at": now(), "last": self.writer.last + 1, **how}
        await self.writer.finish(self.outcome, kind, event)
        self._announce()

    def _on_begin(self, cell: AsyncCell) -> None:
        self._cell = cell
        execution_id, kernel = cell.request.id, cell.kernel.record
        self._append("started", {"job_id": self._id, "execution_id": execution_id})
        known = {"kernel_id": kernel.kernel_id, "kernel": kernel.name, "execution_id": execution_id}
        self.record = {**self.record, **known}  # not changed in place: threads read it
        self.writer.update(self.record)
        if not self._begun.done():
            self._begun.set_result(None)
        if self._is_cancelled:
            cell.cancel()

    def _on_event(self, event: CellEvent) -> None:
        match event:
            case CellOutput(item, image):
                shown = {**item.to_dict(), "display_id": item.display_id}
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
        """Takes the answers that came to other servers, while a question is open."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for request in [] if self._cell is None else self._cell.open_requests():
                answer = await in_thread(self._journal.take_answer, self._id, request.id)
                if answer is not None:
                    with contextlib.suppress(KernelBoxError):
                        await self.answer(request.id, answer)

    def _append(self, kind: str, event: dict[str, Any]) -> None:
        self.writer.append(kind, dump(event))
        self._announce()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def describe_request(request: ApprovalRequest) -> dict[str, Any]:
    """Returns an approval request as events have it; `call` shows it on one line, for people."""
    names = ("id", "server_name", "tool_name", "tool_args")
    return {**{name: getattr(request, name) for name in names}, "call": str(request)}


def approval_closed(request_id: str, outcome: str = "closed") -> ApprovalClosed:
    """Returns the error for an answer to a request that does not wait for one."""
    return ApprovalClosed(f"the request {request_id[:64]!r}", outcome)
