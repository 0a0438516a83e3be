"""A cell that is sent to a name, on an event loop: the twin of `_blocking_cell`, with the same items and results."""

from __future__ import annotations

import asyncio

from kernelbox.core._executor_values import ToolEvent
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.shells._asyncio_cell import CellOutput
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.shells._asyncio_asks import AsyncApprove
    from kernelbox.shells._asyncio_cell import AsyncCell
    from kernelbox.shells._asyncio_kernels import AsyncKernels
    from kernelbox.wire._results import OutputItem

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
    cell.approve = approve
    if on_begin is not None:
        on_begin(cell)
    result: ExecutionResult | None = None
    try:
        async for event in cell:
            match event:
                case CellOutput():
                    yield event.item
                case ApprovalRequest() | ToolEvent():
                    yield event
                case ExecutionResult():
                    result = event
    finally:
        if not cell.ended:
            await asyncio.shield(asyncio.ensure_future(cell.leave()))
    assert result is not None, "a cell ends with its result"
    if result.ending == "died":
        await kernels.report_death(kernel, result)
    yield result
