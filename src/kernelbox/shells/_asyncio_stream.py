"""A cell that is sent to a name, on an event loop: the twin of `_blocking_cell`, with the same items and results."""

from __future__ import annotations

import asyncio
import inspect

from kernelbox.core._executor_values import ToolEvent
from kernelbox.core.approvals._approve_argument import reason_for
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.shells._asyncio_cell import CellOutput
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.shells._asyncio_cell import AsyncCell
    from kernelbox.shells._asyncio_kernels import AsyncKernels
    from kernelbox.wire._results import OutputItem

    # True accepts; a string rejects with that reason, anything else without one.
    AsyncApprove = Callable[[ApprovalRequest], bool | str | Awaitable[bool | str | None] | None]
    Item = OutputItem | ApprovalRequest | ToolEvent | ExecutionResult


async def stream_named(
    kernels: AsyncKernels,
    name: str,
    code: str,
    options: CellOptions,
    approve: AsyncApprove | None = None,
    *,
    on_begin: Callable[[AsyncCell], None] | None = None,
) -> AsyncGenerator[Item, None]:
    """Finds or opens the kernel of a name, and yields what a cell shows and asks, the result last.

    `approve` answers its questions; without it they are yielded. `on_begin` is called with the cell that was sent.
    Closing the generator, or cancelling its task, interrupts the cell and waits until the kernel is free.
    """
    request = options.request(code)
    kernel = await kernels.use(name)
    if kernel.is_dead:
        yield await kernels.dead_result(kernel)
        return
    cell = await kernels.begin(kernel, request, options)
    if on_begin is not None:
        on_begin(cell)
    answers = _Answers(cell, approve)
    result: ExecutionResult | None = None
    try:
        async for event in cell:
            match event:
                case CellOutput():
                    yield event.item
                case ApprovalRequest() if approve is not None:
                    answers.begin(event)
                case ApprovalRequest() | ToolEvent():
                    yield event
                case ExecutionResult():
                    result = event
    finally:
        answers.cancel()
        if not cell.ended:
            await asyncio.shield(asyncio.ensure_future(cell.leave()))
    answers.raise_failure()
    assert result is not None, "a cell ends with its result"
    if result.ending == "died":
        await kernels.report_death(kernel, result)
    yield result


class _Answers:
    """The application's answers to the requests of one cell, each in a task: the cell's output goes on meanwhile."""

    def __init__(self, cell: AsyncCell, approve: AsyncApprove | None) -> None:
        self._cell = cell
        self._approve = approve
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def begin(self, request: ApprovalRequest) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def raise_failure(self) -> None:
        """Raises what the application's function has raised; the cell was stopped because of it."""
        if self._failure is not None:
            raise self._failure

    async def _answer(self, request: ApprovalRequest) -> None:
        assert self._approve is not None
        verdict = self._approve(request)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if request.open and verdict is True:
            await request.accept()
        elif request.open:
            await request.reject(reason_for(verdict))

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._cell.cancel()
