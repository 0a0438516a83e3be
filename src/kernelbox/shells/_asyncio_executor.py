"""A CodeExecutor's kernel on an event loop: opened, replaced and given up, with one cell at a time in it."""

from __future__ import annotations

import asyncio
import os

from kernelbox.base._errors import ExecutorStopped, KernelNotFound
from kernelbox.base._unique_objects import Handle
from kernelbox.core._executor_values import CodeExecutionChunk, CodeExecutionResult, Lines, ToolEvent, read_variables
from kernelbox.core.approvals._requests import ApprovalRequest
from kernelbox.host.process._forks import forget_in_forks
from kernelbox.shells._asyncio_cell import CellOutput
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from typing import Any, TypeVar

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._executor_values import Variable
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._options import KernelOptions
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.shells._asyncio_cell import AsyncCell
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._messages import Execute

    T = TypeVar("T")

# What the user of an executor does when its kernel has died.
_ADVICE = "await executor.reset() for a fresh one"


class Executor(Handle):
    """Holds one kernel at a time, and runs cells in it in the order of the calls.

    It belongs to the process that started it. In a fork of that process it is stopped, and can be started again.
    """

    def __init__(self, toolbox: Toolbox, *, keep_cancelled: bool) -> None:
        """With `keep_cancelled`, the result of a cancelled cell has what it had written."""
        self._toolbox = toolbox
        self._keep_cancelled = keep_cancelled
        self._begin_stopped()
        forget_in_forks(self)

    def _begin_stopped(self) -> None:
        self._here: Kernels | None = None
        self._kernels: AsyncKernels | None = None
        self._kernel: KernelHandle | None = None
        self._cells = asyncio.Lock()  # held by the cell that runs
        self._change = asyncio.Lock()  # held while the kernel is opened, replaced or given up
        self._running: AsyncCell | None = None
        self._background: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"<Executor {self.state} of {self._kernel!r}>"

    @property
    def state(self) -> str:
        return "stopped" if self._kernel is None else "running" if self._running else "idle"

    async def start(self, kernels: Kernels, name: str | None, options: KernelOptions) -> None:
        """Opens the kernel."""
        async with self._change:
            if self._kernel is not None:
                raise RuntimeError("the executor is running already; stop() it before you start it again")
            self._here = kernels
            self._kernels = self._reach(options)
            self._kernel = await _open(self._kernels, name)

    async def stop(self, *, private: bool) -> None:
        """Ends what is running, and the kernel if it is private; returns when nothing is left of it.

        It continues when it is cancelled, and in a loop that ends.
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
            self._running.forget()
        self._begin_stopped()

    async def reset(self, name: str | None, options: KernelOptions) -> None:
        """Replaces the kernel by a clean one. A cell that is running fails; cells that wait run in the new kernel."""
        async with self._change:
            _, old = self._require_running()
            self._kernels = kernels = self._reach(options)
            closing = self._close_toolbox()
            if closing is not None:
                await asyncio.shield(closing)
            if name is None:
                self._kernel = await _open(kernels, name)
                self._discard(old)
                return
            try:
                self._kernel = kernels.handle(await kernels.restart(old.name))  # another kernel may have the name now
            except KernelNotFound:
                self._kernel = await _open(kernels, name)

    def cancel(self) -> Awaitable[None]:
        """Begins to stop the cell that is running, if any; what is returned is done when the kernel is free."""
        cell = self._running
        if cell is None:
            return _Nothing()
        cell.cancel()
        return self._later(cell.stop())

    async def variables(self, timeout: float | None) -> list[Variable]:  # noqa: ASYNC109  # part of the query
        """Returns the variables of the kernel."""
        async with self._cells:
            kernels, kernel = await self._find()
            content = await kernels.query(kernel, "variables", {}, timeout=timeout)
        return read_variables(kernel.name, content)

    async def between_cells(
        self, function: Callable[[Kernels, str], T], *, undo: Callable[[T], object] | None = None
    ) -> T:
        """Calls a function in a thread with the kernel's id, between cells of this executor."""
        async with self._cells:
            _, kernel = await self._find()
            assert self._here is not None
            return await in_thread(function, self._here, kernel.record.kernel_id, undo=undo)

    async def set_back(self, function: Callable[[Kernels, str], KernelRecord]) -> None:
        """Calls a function that replaces the kernel's process, even while a cell runs."""
        async with self._change:
            kernels, old = self._require_running()
            assert self._here is not None
            self._kernel = kernels.handle(await in_thread(function, self._here, old.record.kernel_id))

    async def stream(
        self, request: Execute, options: CellOptions, *, chunks: bool = False
    ) -> AsyncGenerator[ApprovalRequest | CodeExecutionChunk | ToolEvent | CodeExecutionResult, None]:
        """Runs a cell and yields what the caller sees of it, the result last; text and tool events with `chunks`."""
        kernels, cell = await self._begin(request, options)
        lines = Lines()
        try:
            async for event in cell:
                match event:
                    case ExecutionResult():
                        result = event
                    case ApprovalRequest():
                        yield event
                    case ToolEvent() if chunks:
                        yield event
                    case CellOutput() if chunks and (text := lines.add(event.item)):
                        yield CodeExecutionChunk(text)
        finally:
            if not cell.ended:
                await asyncio.shield(self._later(cell.leave()))
        if result.ending == "died":
            await kernels.report_death(cell.kernel, result)
        shown = CodeExecutionResult.of(result, cancelled=cell.is_cancelled, text_limit=options.text_limit)
        yield shown if self._keep_cancelled or not shown.cancelled else CodeExecutionResult(None, [], cancelled=True)

    async def _begin(self, request: Execute, options: CellOptions) -> tuple[AsyncKernels, AsyncCell]:
        self._require_running()
        await self._cells.acquire()
        try:
            kernels, kernel = await self._find()
            cell = await kernels.begin(kernel, request, options)
        except BaseException:
            self._cells.release()
            raise
        self._running = cell
        cell.call_at_end(self._on_end)
        return kernels, cell

    def _on_end(self) -> None:
        """Lets the next cell begin."""
        self._running = None
        self._cells.release()

    def _reach(self, options: KernelOptions) -> AsyncKernels:
        """Returns the kernels as the options want new ones; no approval is remembered in them yet."""
        assert self._here is not None
        return AsyncKernels(self._here, options, self._toolbox, advice=_ADVICE)

    def _require_running(self) -> tuple[AsyncKernels, KernelHandle]:
        if self._kernel is None or self._kernels is None:
            raise ExecutorStopped
        return self._kernels, self._kernel

    async def _find(self) -> tuple[AsyncKernels, KernelHandle]:
        """Returns the kernel as it is now: another client may have restarted it."""
        while True:
            kernels, kernel = self._require_running()
            found = await kernels.follow(kernel)
            if self._kernel is kernel:
                self._kernel = found
                return kernels, found

    async def _give_up_after_change(self, private: bool) -> None:
        try:
            async with self._change:
                pass
        finally:
            self._give_up(private)

    def _give_up(self, private: bool) -> None:
        """Begins to end what is running, and the kernel if it is private."""
        kernel, self._kernel = self._kernel, None
        if kernel is not None and private:
            self._discard(kernel)
        elif self._running is not None:
            self._later(self._running.stop())

    def _close_toolbox(self) -> asyncio.Future[None] | None:
        """Begins to end the sessions with tool servers, if there are any; the next call opens others."""
        closing = self._toolbox.close()
        return None if closing is None else self._later(asyncio.wrap_future(closing))

    def _discard(self, kernel: KernelHandle) -> None:
        """Begins to destroy a private kernel, at once: a task that was only made would not run in a loop that ends."""
        assert self._kernels is not None
        destroyed = self._kernels.begin_destroy(kernel.record.kernel_id)
        self._later(_await_end(destroyed, self._running))

    def _later(self, work: Awaitable[None]) -> asyncio.Future[None]:
        """Runs work that must not be abandoned half-way; `stop` waits for it."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _await_end(destroyed: Awaitable[bool], running: AsyncCell | None) -> None:
    """Waits until a kernel is destroyed; the cell that runs in it, if no task awaits it, ends with it."""
    await asyncio.shield(destroyed)
    if running is not None:
        await running.stop()


async def _open(kernels: AsyncKernels, name: str | None) -> KernelHandle:
    if name is None:
        return kernels.handle(await kernels.create(f"executor-{os.urandom(6).hex()}"))
    return kernels.handle(await kernels.open(name))


class _Nothing:
    """Awaiting it takes no time."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # what makes it a generator
