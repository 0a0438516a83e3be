"""Executions: cells of callers, run one after the other in each kernel, within the limits of the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from kernelbox.base._errors import LimitReached
from kernelbox.core._arguments import check_budget, check_language, check_output_limit, check_timeout
from kernelbox.core._cell_options import CellOptions
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.host.files._home import Home
from kernelbox.host.store._record import KernelRecord
from kernelbox.server._service_options import ServiceOptions
from kernelbox.server.http._failures import about_to_end, sentence_about
from kernelbox.server.http._metrics import Metrics
from kernelbox.server.http._tracing import CellSpan
from kernelbox.server.jobs._answers import image_address
from kernelbox.server.jobs._draining import Drained, drain
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.shells._asyncio_cell import AsyncCell, OnEvent

Approve = Literal["ask", "all", "none"]


# Why what would be asked is rejected, and what to send instead, by what the request says.
_UNASKED: dict[str | None, str] = {
    None: 'no one was asked; send "approve": "all", or send "approve": "ask" to a job or stream and answer, or allow '
    "it by a rule of the server's --policy",
    "all": 'the server\'s --policy asks about it; send "approve": "ask" to a job or stream and answer',
    "none": 'the request says "approve": "none"',
}


class Executions:
    """Runs cells in kernels, and knows how many wait or run in each."""

    def __init__(self, kernels: AsyncKernels, options: ServiceOptions, metrics: Metrics) -> None:
        self._metrics = metrics
        self._kernels = kernels
        self._options = options
        self._home = Home(kernels.config.home, kernels.config.key_file)
        self.waiting: Counter[str] = Counter()  # the cells that run or wait in each kernel, those of front ends too
        self.options_for = lru_cache(maxsize=64)(self._make_options)  # the same for most cells
        self._running: set[AsyncCell] = set()
        self.draining = False

    async def run(
        self,
        kernel: KernelHandle,
        code: str,
        options: CellOptions,
        *,
        on_event: OnEvent | None = None,
        on_begin: Callable[[AsyncCell], None] | None = None,
    ) -> ExecutionResult:
        """Runs a cell to its end. Cancelling this interrupts the cell, and does not wait for it.

        `on_begin` gets the cell once the kernel has it; `on_event` is called with each of its events.
        """
        request, record = options.request(code), kernel.record
        with self.noted(record, options.language) as note:
            if kernel.is_dead:
                return await self._kernels.dead_result(kernel)
            cell = await self._kernels.begin(kernel, request, options)
            self._running.add(cell)
            if self.draining:  # it was on its way to the kernel when the server was told to end
                cell.cancel()
            try:
                if on_begin is not None:
                    on_begin(cell)
                result = await cell.drive(on_event)
                note(result)
            finally:
                self._running.discard(cell)
        if result.ending == "died":
            await self._kernels.report_death(kernel, result)
        return result

    def noted(self, record: KernelRecord, language: str) -> _Noted:
        """Returns a place for a cell, to be held while it waits and runs; raises LimitReached if none is free."""
        here, most = record.kernel_id, self._options
        if self.draining:
            raise about_to_end()
        if most.max_queue and self.waiting[here] >= most.max_queue:
            sentence = (
                f"the most cells that kernel {record.name!r} may have to run is {most.max_queue}; try again later"
            )
            raise LimitReached(sentence, of_server=False)
        if most.max_running and self.waiting.total() >= most.max_running:
            sentence = f"the most cells that this server may have to run is {most.max_running}; try again later"
            raise LimitReached(sentence, of_server=True)
        return _Noted(record, language, self.waiting, self._metrics)

    async def drain(self, grace: float, *, hurry: asyncio.Event) -> Drained:
        """Takes no more cells, and returns when those that run have ended.

        They have `grace` seconds, or until `hurry` is set; then they are interrupted.
        """
        self.draining = True
        return await drain(list(self._running), grace, hurry=hurry)

    def _make_options(
        self,
        language: str,
        timeout: float | None = None,
        approve: Approve | None = None,
        output_char_limit: int | None = None,
        budget: int | None = None,
    ) -> CellOptions:
        """Returns the options that a request asks for; raises InvalidInput.

        Without `approve`, shell commands run and tool calls are rejected.
        """
        config = self._kernels.config
        return CellOptions(
            check_language(language),
            check_timeout(timeout, config.execution_timeout),
            check_output_limit(output_char_limit, config.output_char_limit),
            self._home,
            describe=sentence_about,
            address=image_address,
            budget=check_budget(budget),
            policy=self._options.policy,
            shell="ask" if approve in ("ask", "none") else "accept",
            tools="accept" if approve == "all" else "ask",
            asking="show" if approve == "ask" else "reject",
            unasked=_UNASKED.get(approve, ""),
            patience=self._options.approval_timeout,
            stop_clock=True,
        )


class _Noted:
    """A place in the queue of a kernel, and a span; the function that it gives takes the result."""

    def __init__(self, record: KernelRecord, language: str, waiting: Counter[str], metrics: Metrics) -> None:
        self._kernel_id = record.kernel_id
        self._waiting = waiting
        self._metrics = metrics
        self._span = CellSpan(record, language)

    def __enter__(self) -> Callable[[ExecutionResult], None]:
        self._waiting[self._kernel_id] += 1
        return self._note

    def __exit__(self, *_: object) -> None:
        self._span.end()
        self._waiting[self._kernel_id] -= 1
        if not self._waiting[self._kernel_id]:
            del self._waiting[self._kernel_id]

    def _note(self, result: ExecutionResult) -> None:
        self._metrics.count(result)
        self._span.tell(result)
