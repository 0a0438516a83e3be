"""Jobs: cells that run while the caller does something else, for blocking and asynchronous code.

MCP's jobs are in `shells/_asyncio_cell_job.py`, and HTTP's, which outlive their server, in `server/jobs/`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing

from kernelbox.base._unique_objects import Handle
from kernelbox.core._kernel_handle import next_by_name
from kernelbox.core.approvals._requests import SyncApprovalRequest
from kernelbox.host.process._loop_thread import LoopThread
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.shells._asyncio_stream import stream_named
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from typing import Any, TypeVar

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._options import KernelOptions
    from kernelbox.core.approvals._requests import ApprovalRequest, Approve
    from kernelbox.shells._asyncio_asks import AsyncApprove
    from kernelbox.shells._asyncio_cell import AsyncCell
    from kernelbox.wire._results import OutputItem

    T = TypeVar("T")
    JobEvent = OutputItem | ApprovalRequest | ToolEvent

# Events that are kept for a caller that reads them late; the result has the text of all of them.
_MOST_EVENTS = 10_000

_thread = LoopThread("kernelbox-jobs")


class AsyncJob(Handle):
    """A cell that runs in the background of an event loop."""

    def __init__(
        self, kernels: AsyncKernels, name: str, code: str, options: CellOptions, approve: AsyncApprove | None
    ) -> None:
        self._cell: AsyncCell | None = None
        self._cancelled = False
        self._events: deque[JobEvent] = deque(maxlen=_MOST_EVENTS)
        self._seen = 0  # events that have come, those no longer kept included
        self._changed = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(kernels, name, code, options, approve))

    def __repr__(self) -> str:
        return f"<AsyncJob {'done' if self.done else 'running'}>"

    @property
    def done(self) -> bool:
        """Whether the result is there."""
        return self._task.done()

    async def result(self) -> ExecutionResult:
        """Waits for the result. The job goes on if the task that waits is cancelled."""
        return await asyncio.shield(self._task)

    async def events(self) -> AsyncIterator[JobEvent]:
        """Yields what the cell has shown so far, and then what it shows, to its end."""
        position = 0
        while (event := await self.next_event(position)) is not None:
            position, item = event
            yield item

    async def next_event(self, position: int) -> tuple[int, JobEvent] | None:
        """Waits for the event after a position; returns its own position and it, None at the end."""
        while True:
            changed, first = self._changed, self._seen - len(self._events)
            if position < self._seen:
                position = max(position, first)
                return position + 1, self._events[position - first]
            if self.done:
                return None
            waiting = asyncio.ensure_future(changed.wait())
            try:
                await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()

    async def cancel(self) -> ExecutionResult:
        """Interrupts the cell, by the same steps as a timeout; returns its result when the kernel is free."""
        self._cancelled = True
        if self._cell is not None:
            self._cell.cancel()
        return await self.result()

    async def _run(
        self, kernels: AsyncKernels, name: str, code: str, options: CellOptions, approve: AsyncApprove | None
    ) -> ExecutionResult:
        async with aclosing(stream_named(kernels, name, code, options, approve, on_begin=self._on_begin)) as items:
            async for item in items:
                if isinstance(item, ExecutionResult):
                    return item
                self._events.append(item)
                self._seen += 1
                self._changed.set()
                self._changed = asyncio.Event()  # several may wait, and none of them may miss it
        raise AssertionError("a stream ends with its result")

    def _on_begin(self, cell: AsyncCell) -> None:
        self._cell = cell
        if self._cancelled:
            cell.cancel()


class Job(Handle):
    """A cell that runs in the background of a process; an event loop in a thread of its own drives it."""

    def __init__(self, job: AsyncJob) -> None:
        self._job = job

    def __repr__(self) -> str:
        return f"<Job {'done' if self.done else 'running'}>"

    @classmethod
    def of(
        cls,
        here: Kernels,
        name: str,
        code: str,
        options: CellOptions,
        approve: Approve | None,
        new: KernelOptions,
    ) -> Job:
        """Begins a cell in the kernel of a name; `new` is what it is opened with, if there is none."""

        async def begin() -> AsyncJob:
            from kernelbox.tools._toolbox import shared_toolbox

            kernels = AsyncKernels(here, new, shared_toolbox(here.config), advice=next_by_name(name))
            return AsyncJob(kernels, name, code, options, None if approve is None else answer_in_thread(approve))

        options.request(code)  # raises InvalidInput here, not in the thread
        return cls(_thread.submit(begin()).result())

    @property
    def done(self) -> bool:
        """Whether the result is there."""
        return self._job.done

    def result(self, timeout: float | None = None) -> ExecutionResult:
        """Waits for the result; raises TimeoutError after `timeout` seconds, and the job goes on."""
        return _wait(self._job.result(), timeout)

    def events(self) -> Iterator[JobEvent]:
        """Yields what the cell has shown so far, and then what it shows, to its end."""
        position = 0
        while (event := _wait(self._job.next_event(position))) is not None:
            position, item = event
            yield item

    def cancel(self) -> ExecutionResult:
        """Interrupts the cell, by the same steps as a timeout; returns its result when the kernel is free."""
        return _wait(self._job.cancel())


def _wait(work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Waits for a coroutine in the thread of jobs, which is cancelled if the caller gives up."""
    future = _thread.submit(work)
    try:
        return future.result(timeout)
    finally:
        future.cancel()


def answer_in_thread(approve: Approve) -> AsyncApprove:
    """Makes a plain function, which may block, answer the requests of an event loop, in a thread."""

    async def ask(request: ApprovalRequest) -> bool | str | None:
        shown = SyncApprovalRequest(request.server_name, request.tool_name, request.tool_args, id=request.id)
        answer = await asyncio.to_thread(approve, shown)
        verdict = shown.verdict
        if verdict is None:
            return answer
        if verdict.accepted and request.open:
            await request.accept(remember=verdict.remember, args=verdict.patterns)
        return verdict.accepted or verdict.reason

    return ask
