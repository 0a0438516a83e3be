"""A CodeExecutor's kernel on an event loop: opened, replaced and given up, with one cell at a time in it."""

from __future__ import annotations

import asyncio
import os

from kernelbox.base._errors import ExecutorStopped, KernelDied, KernelNotFound
from kernelbox.core._executor_values import CodeExecutionChunk, ToolEvent, read_variables
from kernelbox.core._images import ImageFiles
from kernelbox.core.approvals._memory import Sessions
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.host.process._forks import forget_in_forks
from kernelbox.shells._asyncio import Run, query
from kernelbox.shells._asyncio_asks import Asks
from kernelbox.shells._asyncio_cell import ADVICE, ExecutorCell
from kernelbox.shells._loop_connection import in_thread
from kernelbox.wire._messages import Ask, Withdraw
from kernelbox.wire._results import OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Generator
    from typing import Any

    from kernelbox.core._executor_options import ExecutorOptions
    from kernelbox.core._executor_values import CodeExecutionResult, Variable
    from kernelbox.core._kernel import Kernel
    from kernelbox.core._kernels import Kernels
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._messages import Execute


class Executor:
    """Holds one kernel at a time, and runs cells in it in the order of the calls.

    It belongs to the process that started it. In a fork of that process it is stopped, and can be started anew.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._begin_stopped()
        forget_in_forks(self)

    def _begin_stopped(self) -> None:
        self._sessions = Sessions()
        self._kernels: Kernels | None = None
        self._kernel: Kernel | None = None
        self._cells = asyncio.Lock()  # held by the cell that runs
        self._change = asyncio.Lock()  # held while the kernel is opened, replaced or given up
        self._running: ExecutorCell | None = None
        self._background: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"<Executor {self.state} of {self._kernel!r}>"

    @property
    def state(self) -> str:
        return "stopped" if self._kernel is None else "running" if self._running else "idle"

    async def start(self, kernels: Kernels, options: ExecutorOptions) -> None:
        """Opens the kernel."""
        async with self._change:
            if self._kernel is not None:
                raise RuntimeError("the executor is running already; stop() it before you start it again")
            self._kernels = kernels
            self._kernel = await _open(kernels, options)

    async def stop(self, *, private: bool) -> None:
        """Ends what is running, and the kernel if it is private; returns when nothing is left of it.

        It goes on when it is cancelled, and in a loop that ends.
        """
        if self._change.locked():
            await asyncio.shield(self._later(self._give_up_after_change(private)))
        else:
            self._give_up(private)
        self._close_toolbox()
        while self._background:
            done, _ = await asyncio.wait(self._background)
            for task in done:
                task.result()
            self._close_toolbox()  # the cell that ran may have called a tool meanwhile

    def forget(self) -> None:
        """Leaves kernel and cell to the process that we were forked from; tasks of its event loop are not awaited."""
        if self._running is not None:
            self._running.run.forget()
        self._begin_stopped()

    async def reset(self, options: ExecutorOptions) -> None:
        """Replaces the kernel by a clean one. A cell that is running fails; cells that wait run in the new kernel."""
        async with self._change:
            kernels, old = self._require_running()
            self._sessions = Sessions()
            closing = self._close_toolbox()
            if closing is not None:
                await asyncio.shield(closing)
            if options.name is None:
                self._kernel = await _open(kernels, options)
                self._discard(old)
                return
            try:
                self._kernel = await in_thread(_restart, kernels, old)
            except KernelNotFound:
                self._kernel = await _open(kernels, options)

    def cancel(self) -> Awaitable[None]:
        """Begins to stop the cell that is running, if any; what is returned is done when the kernel is free."""
        cell = self._running
        if cell is None:
            return _Nothing()
        cell.cancel()
        return self._later(cell.run.stop())

    async def variables(self, timeout: float | None) -> list[Variable]:  # noqa: ASYNC109  # part of the query
        """Returns what lives in the kernel."""
        async with self._cells:
            kernel = await self._find()
            try:
                content = await query(kernel, "variables", {}, timeout=timeout)
            except KernelDied as exc:
                raise KernelDied(kernel.name, exc.cause, ADVICE) from exc
        return read_variables(kernel.name, content)

    async def stream(
        self,
        request: Execute,
        options: ExecutorOptions,
        timeout: float | None,  # noqa: ASYNC109  # it interrupts the cell and keeps what it wrote
        *,
        present: bool,
        chunks: bool = False,
        stop_clock: bool = False,
    ) -> AsyncGenerator[ApprovalRequest | CodeExecutionChunk | ToolEvent | CodeExecutionResult, None]:
        """Runs a cell and yields what the caller sees of it, the result last; see `Asks` for the other options."""
        cell = await self._begin(request, options, timeout, present, stop_clock)
        try:
            while events := await cell.run.next():
                for event in events:
                    if isinstance(event, Ask):
                        cell.asks.take(event)
                    elif isinstance(event, Withdraw):
                        cell.asks.withdraw(event.ask)
                    elif isinstance(event, ToolEvent):
                        if chunks:
                            yield event
                    elif isinstance(event, ApprovalRequest):
                        if cell.asks.show(event):
                            yield event
                    elif isinstance(event, OutputItem):
                        if cell.images.has_image(event):
                            await asyncio.to_thread(cell.images.save, event)
                        if chunks and (text := cell.lines.add(event)):
                            yield CodeExecutionChunk(text)
                        if chunks and (notice := cell.images.take_notice()):
                            yield CodeExecutionChunk(cell.lines.add(notice))
        finally:
            if not cell.run.ended:
                cell.asks.close("the execution was left")
                await asyncio.shield(self._later(cell.run.stop()))
        yield cell.conclude()

    async def _begin(
        self,
        request: Execute,
        options: ExecutorOptions,
        timeout: float | None,  # noqa: ASYNC109  # as above
        present: bool,
        stop_clock: bool,
    ) -> ExecutorCell:
        self._require_running()
        await self._cells.acquire()
        try:
            kernel = await self._find()
            images = ImageFiles(str(options.images_dir))
            run = await Run.begin(kernel, request, timeout=timeout)
        except BaseException:
            self._cells.release()
            raise
        run.call_at_end(self._on_end)
        gate = options.gate(kernel.record, self._sessions)
        asks = Asks(run, gate, self._toolbox, patience=options.approval_timeout, present=present, stop_clock=stop_clock)
        cell = ExecutorCell(run, asks, images)
        if run.execution.result is None:
            self._running = cell
        return cell

    def _on_end(self) -> None:
        """Lets the next cell begin."""
        cell, self._running = self._running, None
        if cell is not None:
            cell.asks.end()
        self._cells.release()

    def _require_running(self) -> tuple[Kernels, Kernel]:
        if self._kernel is None or self._kernels is None:
            raise ExecutorStopped
        return self._kernels, self._kernel

    async def _find(self) -> Kernel:
        """Returns the kernel as it is now: another client may have restarted it."""
        while True:
            kernels, kernel = self._require_running()
            if kernel.is_connected:
                return kernel
            found = await in_thread(kernels.find, kernel.record.kernel_id)
            if self._kernel is kernel:
                if found is not None:
                    self._kernel = kernels.kernel(found, environment=kernel.environment)
                return self._kernel

    async def _give_up_after_change(self, private: bool) -> None:
        try:
            async with self._change:
                pass
        finally:
            self._give_up(private)

    def _give_up(self, private: bool) -> None:
        """Begins to end what is running, and the kernel if it is private."""
        kernel, self._kernel = self._kernel, None
        self._sessions = Sessions()
        if kernel is not None and private:
            self._discard(kernel)
        elif self._running is not None:
            self._later(self._running.run.stop())

    def _close_toolbox(self) -> asyncio.Future[None] | None:
        """Begins to end the sessions with tool servers, if there are any; the next call opens others."""
        closing = self._toolbox.close()
        return None if closing is None else self._later(asyncio.wrap_future(closing))

    def _discard(self, kernel: Kernel) -> None:
        """Begins to destroy a private kernel, at once: a task that was only made would not run in a loop that ends."""
        assert self._kernels is not None
        destroyed = asyncio.get_running_loop().run_in_executor(None, self._kernels.destroy, kernel.record.kernel_id)
        self._later(_await_end(destroyed, self._running))

    def _later(self, work: Awaitable[None]) -> asyncio.Future[None]:
        """Has something done that must not be given up half-way; `stop` waits for it."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _await_end(destroyed: Awaitable[bool], running: ExecutorCell | None) -> None:
    """Waits until a kernel is destroyed; the cell that runs in it, if no task awaits it, ends with it."""
    await asyncio.shield(destroyed)
    if running is not None:
        await running.run.stop()


async def _open(kernels: Kernels, options: ExecutorOptions) -> Kernel:
    def open_kernel() -> Kernel:
        wanted = options.kernel_options()
        if options.name is not None:
            record = kernels.get_or_create(options.name, wanted, as_it_is=True)
        else:
            record = kernels.create(f"executor-{os.urandom(6).hex()}", wanted)
        return kernels.kernel(record, environment=wanted.env)

    def undo(kernel: Kernel) -> None:
        if options.name is None:
            kernels.destroy(kernel.record.kernel_id)

    return await in_thread(open_kernel, undo=undo)


def _restart(kernels: Kernels, old: Kernel) -> Kernel:
    """Starts a named kernel anew, with the executor's environment, also one that others opened."""
    record = kernels.restart(old.name, environment=old.environment)  # whatever kernel has the name now
    return kernels.kernel(record, environment=old.environment)


class _Nothing:
    """Awaiting it takes no time."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # what makes it a generator
