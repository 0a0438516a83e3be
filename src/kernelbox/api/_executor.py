"""CodeExecutor: the asynchronous API, one kernel at a time, with streaming and approvals."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import warnings
from contextlib import aclosing
from pathlib import Path

from kernelbox.api._executor_cell import ExecutorCell, written
from kernelbox.api._executor_values import CodeExecutionChunk, CodeExecutionResult, Variable, read_variables
from kernelbox.api._here import kernels
from kernelbox.base._config import KernelBoxConfig, scrubbed_environment
from kernelbox.base._errors import (
    CodeExecutionError,
    ExecutionTimeout,
    ExecutorStopped,
    InvalidInput,
    KernelNotFound,
    StartFailed,
)
from kernelbox.core._arguments import check_code, check_language
from kernelbox.core._gate import Gate
from kernelbox.core._images import ImageFiles, check_images_dir
from kernelbox.core._memory import Sessions
from kernelbox.core._options import KernelOptions
from kernelbox.core._policy import check_policy
from kernelbox.core._requests import ApprovalRequest
from kernelbox.core._tool_events import ToolEvent
from kernelbox.shells import _asyncio
from kernelbox.shells._asyncio import Run
from kernelbox.shells._asyncio_asks import Asks
from kernelbox.shells._loop_connection import in_thread
from kernelbox.tools._toolbox import CONNECT_TIMEOUT, Toolbox
from kernelbox.wire._bounded import bound
from kernelbox.wire._messages import Ask, Execute, Withdraw
from kernelbox.wire._results import OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator, Mapping
    from typing import Any, Self

    from kernelbox.core._kernel import Kernel
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._policy import ApprovalPolicy
    from kernelbox.host._record import KernelRecord

_log = logging.getLogger("kernelbox")

# A result is complete up to here, more than a model can read; beyond, head and tail are kept.
_OUTPUT_CHAR_LIMIT = 2_000_000

_GONE = {
    "tool_server_host": "there is no tool server",
    "tool_server_port": "there is no tool server",
    "kernel_gateway_host": "there is no kernel gateway",
    "kernel_gateway_port": "there is no kernel gateway",
    "kernel_init_timeout": "kernels are forked in milliseconds",
}


class CodeExecutor:
    """Runs code in a kernel whose variables last from call to call: a private one, or the kernel called `name`.

    Calls queue: one cell runs at a time, in the order of the calls. See docs/streaming-and-approvals.md.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        kernel_env: Mapping[str, str] | None = None,
        working_dir: str | os.PathLike[str] | None = None,
        images_dir: str | os.PathLike[str] | None = None,
        approval_timeout: float | None = 60,
        approve_tool_calls: bool = True,
        approve_shell_cmds: bool = False,
        require_shell_escape: bool = False,
        approval_policy: ApprovalPolicy | None = None,
        mcp_servers: Mapping[str, Mapping[str, object]] | None = None,
        connect_timeout: float | None = CONNECT_TIMEOUT,
        output_char_limit: int = _OUTPUT_CHAR_LIMIT,
        report_changes: bool = True,
        sandbox: bool = False,
        sandbox_config: str | os.PathLike[str] | None = None,
        log_level: str = "WARNING",
        **gone: object,
    ) -> None:
        for parameter in gone:
            if parameter not in _GONE:
                raise TypeError(f"CodeExecutor() got an unexpected keyword argument {parameter!r}")
            text = f"CodeExecutor({parameter}=) has no effect and will be removed: {_GONE[parameter]} in kernelbox"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        if require_shell_escape and not approve_shell_cmds:
            allowed = "without approve_shell_cmds=True there would be no way left to run a command"
            raise InvalidInput("require_shell_escape", require_shell_escape, allowed)
        self.name = name
        self.working_dir = None if working_dir is None else Path(os.path.abspath(working_dir))
        self.images_dir = Path(check_images_dir(images_dir or "images"))
        self.approval_timeout = _check_seconds("approval_timeout", approval_timeout)
        self.approval_policy = check_policy(approval_policy)
        self.log_level = _check_log_level(log_level)
        self.sandbox = sandbox
        self.sandbox_config = sandbox_config
        self.kernel_env = _check_env(kernel_env or {})
        self.approve_tool_calls = approve_tool_calls
        self.approve_shell_cmds = approve_shell_cmds
        self.require_shell_escape = require_shell_escape
        self._output_char_limit = output_char_limit
        self._report_changes = report_changes
        self._sessions = Sessions()
        self._toolbox = Toolbox(
            KernelBoxConfig.from_env(),
            mcp_servers,
            connect_timeout=_check_seconds("connect_timeout", connect_timeout),
        )
        self._kernels: Kernels | None = None
        self._kernel: Kernel | None = None
        self._cells = asyncio.Lock()  # held by the cell that runs
        self._change = asyncio.Lock()  # held while the kernel is opened, replaced or given up
        self._running: ExecutorCell | None = None
        self._background: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        state = "stopped" if self._kernel is None else "running" if self._running else "idle"
        return f"<CodeExecutor {self.name or 'private'} {state}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- the kernel's life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the kernel; raises RuntimeError if it is open already, and StartFailed."""
        if self.sandbox:
            raise StartFailed(
                "CodeExecutor(sandbox=True) cannot start: this version of kernelbox has no sandbox, and will not run "
                "code outside one that was asked for"
            )
        _log.setLevel(self.log_level)
        async with self._change:
            if self._kernel is not None:
                raise RuntimeError("the executor is running already; stop() it before you start it again")
            self._kernels = kernels()
            self._kernel = await self._open()

    async def stop(self) -> None:
        """Ends what is running, and the kernel if it is private; returns when nothing is left of it."""
        async with self._change:
            kernel, self._kernel = self._kernel, None
        self._sessions = Sessions()
        if kernel is not None and self.name is None:
            self._later(self._discard(kernel, self._running))
        elif self._running is not None:
            self._later(self._running.run.stop())
        await self._close_toolbox()
        if self._background:
            done, _ = await asyncio.wait(self._background)
            for task in done:
                task.result()

    async def reset(self) -> None:
        """Replaces the kernel by a clean one, whatever it is doing; its variables are lost.

        A cell that is running fails. Cells that wait run in the new kernel.
        """
        async with self._change:
            kernels, old = self._require_running()
            self._sessions = Sessions()
            await self._close_toolbox()
            if self.name is None:
                self._kernel = await self._open()
                self._later(self._discard(old, self._running))
                return
            try:
                self._kernel = await in_thread(self._restart, kernels, old)
            except KernelNotFound:
                self._kernel = await self._open()

    def cancel(self) -> Awaitable[None]:
        """Begins to stop the cell that is running, if any; its `execute` or `stream` returns what it had written.

        What is returned can be awaited, until the kernel is free; it need not be.
        """
        cell = self._running
        if cell is None:
            return _Nothing()
        cell.cancelled = True
        cell.run.cancel()
        return self._later(cell.run.stop())

    async def variables(self, timeout: float = 10) -> list[Variable]:  # noqa: ASYNC109  # ipybox's way to say it
        """Returns what lives in the kernel, by name: 10,000 variables at most."""
        async with self._cells:
            kernel = await self._find()
            content = await _asyncio.query(kernel, "variables", {}, timeout=timeout)
        return read_variables(kernel.name, content)

    # -- running code ----------------------------------------------------------------------------------------

    async def execute(
        self,
        code: str,
        timeout: float | None = 120,  # noqa: ASYNC109  # it interrupts the cell and keeps what it wrote
        *,
        language: str = "python",
    ) -> CodeExecutionResult:
        """Runs code and returns what it wrote and showed.

        Tool calls and shell commands run without asking, unless the policy denies them. Raises CodeExecutionError,
        and TimeoutError when `timeout` seconds have passed; the cell is then interrupted and the kernel goes on.
        """
        items = self._stream(code, timeout, language=language, ask=False)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, CodeExecutionResult):
                    return item
        raise AssertionError("a stream ends with its result")

    def stream(
        self,
        code: str,
        timeout: float | None = 120,
        chunks: bool = False,
        *,
        language: str = "python",
        exclude_approval_wait: bool = False,
    ) -> AsyncGenerator[ApprovalRequest | CodeExecutionChunk | ToolEvent | CodeExecutionResult, None]:
        """Runs code and yields approval requests, with `chunks` also text as it is written, and the result last.

        Leaving the loop interrupts the cell. `timeout` counts all the time there is, waiting for approvals included
        unless `exclude_approval_wait` is set. Raises as `execute` does.
        """
        return self._stream(code, timeout, language=language, ask=True, chunks=chunks, exclude=exclude_approval_wait)

    async def _stream(
        self,
        code: str,
        timeout: float | None,  # noqa: ASYNC109  # as above
        *,
        language: str,
        ask: bool,
        chunks: bool = False,
        exclude: bool = False,
    ) -> AsyncGenerator[ApprovalRequest | CodeExecutionChunk | ToolEvent | CodeExecutionResult, None]:
        cell = await self._begin(code, timeout, language, ask, exclude)
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
        yield await self._conclude(cell)

    async def _begin(self, code: str, timeout: float | None, language: str, ask: bool, exclude: bool) -> ExecutorCell:  # noqa: ASYNC109  # as above
        _check_seconds("timeout", timeout)
        request = Execute(
            os.urandom(8).hex(),
            check_code(code),
            check_language(language),
            approve_shell=self.approve_shell_cmds or self.approval_policy.concerns_shell(),
            shell_escape_only=self.require_shell_escape,
            restore_cwd="" if self.working_dir is None else str(self.working_dir),
            report_changes=self._report_changes,
            text_limit=self._output_char_limit,
        )
        self._require_running()
        await self._cells.acquire()
        try:
            kernel = await self._find()
            images = ImageFiles(str(self.images_dir))
            run = await Run.begin(kernel, request, timeout=timeout, on_end=self._on_end)
        except BaseException:
            self._cells.release()
            raise
        gate = self._gate(kernel.record)
        asks = Asks(run, gate, self._toolbox, patience=self.approval_timeout, present=ask, stop_clock=exclude)
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

    def _gate(self, record: KernelRecord) -> Gate:
        return Gate(
            record,
            self.approval_policy,
            self._sessions,
            shell="ask" if self.approve_shell_cmds else "accept",
            tools="ask" if self.approve_tool_calls else "accept",
        )

    async def _conclude(self, cell: ExecutorCell) -> CodeExecutionResult:
        """Turns the end of an execution into a result or an exception."""
        result, images = cell.run.execution.result, [Path(path) for path in cell.images.paths]
        assert result is not None
        if cell.asks.failure is not None:
            raise cell.asks.failure
        cell.images.conclude(result, self._output_char_limit)
        if result.status == "timeout":
            raise ExecutionTimeout(result, images)
        if cell.cancelled and result.ending in ("interrupted", "restarted", "never ran"):
            text = bound(written(result) or "", self._output_char_limit)
            return CodeExecutionResult(text or None, images, result.changed, cancelled=True)
        if result.error is not None:
            if result.ending == "died":
                result.error.evalue += "; await executor.reset() for a fresh one"
            raise CodeExecutionError(result, images)
        return CodeExecutionResult(result.text or None, images, result.changed)

    # -- the kernel ------------------------------------------------------------------------------------------

    def _require_running(self) -> tuple[Kernels, Kernel]:
        if self._kernel is None or self._kernels is None:
            raise ExecutorStopped
        return self._kernels, self._kernel

    async def _open(self) -> Kernel:
        kernels = self._kernels
        assert kernels is not None
        environment = scrubbed_environment(self.kernel_env)

        def open_kernel() -> Kernel:
            if self.working_dir is not None and not os.path.isdir(self.working_dir):
                raise InvalidInput("working_dir", str(self.working_dir), "there is no such directory")
            if self.name is not None:
                options = KernelOptions(cwd=self.working_dir, env=environment)
                record = kernels.get_or_create(self.name, options)
            else:
                options = KernelOptions(cwd=self.working_dir, env=environment, lifetime="process")
                record = kernels.create(f"executor-{os.urandom(6).hex()}", options)
            return kernels.kernel(record, environment=environment)

        def undo(kernel: Kernel) -> None:
            if self.name is None:
                kernels.destroy(kernel.record.kernel_id)

        return await in_thread(open_kernel, undo=undo)

    def _restart(self, kernels: Kernels, old: Kernel) -> Kernel:
        """Starts a named kernel anew, with this executor's environment, also one that others opened."""
        record = kernels.restart(old.name, environment=old.environment)  # whatever kernel has the name now
        return kernels.kernel(record, environment=old.environment)

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

    async def _discard(self, kernel: Kernel, running: ExecutorCell | None) -> None:
        """Destroys a private kernel; the cell that runs in it, if no task awaits it, ends with it."""
        assert self._kernels is not None
        await in_thread(self._kernels.destroy, kernel.record.kernel_id)
        if running is not None:
            await running.run.stop()

    async def _close_toolbox(self) -> None:
        """Ends the sessions with tool servers; they are opened again when they are needed."""
        closing = self._toolbox.close()
        if closing is not None:
            await asyncio.shield(asyncio.wrap_future(closing))

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Has something done that must not be given up half-way; `stop` waits for it."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


class _Nothing:
    """Awaiting it takes no time."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # what makes it a generator


def _check_seconds(what: str, seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if type(seconds) not in (int, float) or not math.isfinite(seconds) or seconds <= 0:
        raise InvalidInput(what, seconds, "use a number of seconds above 0, or None for no limit")
    return seconds


def _check_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        strings = all(isinstance(part, str) for part in (name, value))
        if not strings or not name or "=" in name or "\0" in name + value:
            raise InvalidInput("kernel_env", {name: value}, "use names and values that are strings")
    return dict(env)


def _check_log_level(level: str) -> str:
    if level not in logging.getLevelNamesMapping():
        raise InvalidInput("log_level", level, f"use one of {', '.join(logging.getLevelNamesMapping())}")
    return level
