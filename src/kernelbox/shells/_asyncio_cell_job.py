"""Jobs: cells that continue whether a caller waits for them or not, each driven by its own task."""

from __future__ import annotations

import asyncio
import contextlib
import os

from kernelbox.core._executor_values import ToolEvent
from kernelbox.core.approvals._requests import ApprovalRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

    from kernelbox.shells._asyncio_cell import AsyncCell, CellEvent
    from kernelbox.wire._results import ExecutionResult


class CellJob:
    """One cell, run to its end by a task of its own. A later call finds it by its `id`.

    `notice` is what a tool's server said last. A job that no caller attends for `leash` seconds is cancelled. `on_end`
    is called with the job when it is done.
    """

    def __init__(self, cell: AsyncCell, on_end: Callable[[CellJob], None] | None = None) -> None:
        self.id = os.urandom(16).hex()
        self.cell = cell
        self.notice = ""
        self._call_at_end = on_end
        self._news = asyncio.Event()
        self._attending = 0
        self._leash: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._driving = self._loop.create_task(self._drive())
        self._driving.add_done_callback(self._on_end)

    def __repr__(self) -> str:
        return f"<CellJob {self.id} in {self.cell.kernel.name!r} {'done' if self.done else 'running'}>"

    @property
    def done(self) -> bool:
        """Whether the cell has ended."""
        return self._driving.done()

    @property
    def result(self) -> ExecutionResult:
        """The result of the cell, once it is done; raises what the job failed with."""
        return self._driving.result()

    @contextlib.contextmanager
    def attended(self, leash: float) -> Iterator[None]:
        """Says that a caller waits for the job; `leash` is how many seconds it may go on without any."""
        self._attending += 1
        self._cut_leash()
        try:
            yield
        finally:
            self._attending -= 1
            if not self._attending and not self.done:
                self._leash = self._loop.call_later(leash, self.cancel)

    async def wait(self, seconds: float, *, seen: Set[str] = frozenset()) -> None:
        """Waits until the cell is done, or asks for more than the requests in `seen`, or the seconds have passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.done and not {request.id for request in self.cell.open_requests()} - seen:
                    self._news.clear()
                    await self._news.wait()

    def cancel(self) -> None:
        """Begins to stop the cell, by the same steps as a timeout; a cell that waits for its turn never runs."""
        if not self.done:
            self.cell.cancel()

    async def stop(self) -> None:
        """Stops the cell, if it still runs, and returns when its kernel is free."""
        self.cancel()
        await asyncio.wait({self._driving})

    async def _drive(self) -> ExecutionResult:
        try:
            return await self.cell.drive(self._note)
        finally:
            await self.cell.stop()

    def _on_end(self, driving: asyncio.Task[ExecutionResult]) -> None:
        self._cut_leash()
        self._news.set()
        if not driving.cancelled():
            driving.exception()  # `result` raises it; without this line asyncio logs it
        if self._call_at_end is not None:
            self._call_at_end(self)

    def _note(self, event: CellEvent) -> None:
        if isinstance(event, ToolEvent):
            self.notice = f"{event.server_name}.{event.tool_name}: {event.text}"
        elif isinstance(event, ApprovalRequest):
            self._news.set()

    def _cut_leash(self) -> None:
        if self._leash is not None:
            self._leash.cancel()
            self._leash = None
