"""CodeExecutor: the asynchronous API, one kernel at a time, with streaming and approvals."""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import aclosing
from pathlib import Path
from typing import overload

from kernelbox.api._configured import kernels
from kernelbox.base._config import EXECUTOR_CHARACTERS, KernelBoxConfig
from kernelbox.base._environment import scrubbed_environment
from kernelbox.base._errors import InvalidInput
from kernelbox.base._limits import check_limits
from kernelbox.base._suggestions import suggest_arguments, suggest_awaited_arguments
from kernelbox.base._unique_objects import Handle
from kernelbox.core._arguments import (
    check_budget,
    check_environment,
    check_language,
    check_output_limit,
    check_path,
    check_python,
    check_seconds,
    check_switch,
)
from kernelbox.core._cell_options import CellOptions
from kernelbox.core._executor_values import CodeExecutionResult
from kernelbox.core._images import choose_images_dir
from kernelbox.core._options import KernelOptions, choose_sandbox
from kernelbox.core.approvals._approval_policy import check_policy
from kernelbox.core.cells._host_functions import check_tools
from kernelbox.shells._asyncio_executor import Executor
from kernelbox.tools._toolbox import CONNECT_TIMEOUT, Toolbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from typing import Self

    from kernelbox.base._limits import Limits
    from kernelbox.core._arguments import LanguageName
    from kernelbox.core._cell_options import Asking
    from kernelbox.core._executor_values import CodeExecutionChunk, ToolEvent, Variable
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._options import SandboxLevel
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.approvals._requests import ApprovalRequest
    from kernelbox.core.cells._host_functions import Tools
    from kernelbox.host.store._checkpoint_files import Checkpoint
    from kernelbox.host.store._record import KernelRecord

_log = logging.getLogger("kernelbox")

# Seconds. The time that people take to answer counts only against a timeout that the caller has chosen.
_DEFAULT_TIMEOUT = 120.0


class CodeExecutor(Handle):
    """Runs code in a kernel whose variables last from call to call: a private one, or the kernel called `name`.

    Calls queue: one cell runs at a time, in the order of the calls. See docs/streaming-and-approvals.md. With `sandbox`
    the kernel is confined, by the rules of `sandbox_config` if that is given, and at `sandbox_level` "srt" inside
    sandbox-runtime: see docs/sandbox.md. With `ipybox` cells end as they do there: the result of one that was cancelled
    is empty, and waiting for approvals counts against no timeout.
    """

    @suggest_arguments
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
        tools: Tools | None = None,
        connect_timeout: float | None = CONNECT_TIMEOUT,
        output_char_limit: int | None = None,
        report_changes: bool = True,
        limits: Limits | Mapping[str, object] | None = None,
        sandbox: bool = False,
        sandbox_config: str | os.PathLike[str] | None = None,
        sandbox_level: SandboxLevel | None = None,
        python: str | os.PathLike[str] | None = None,
        requirements: Sequence[str] | str | os.PathLike[str] | None = None,
        progress: Callable[[str], None] | None = None,
        log_level: str = "WARNING",
        ipybox: bool = False,
        tool_server_host: str | None = None,
        tool_server_port: int | None = None,
        kernel_gateway_host: str | None = None,
        kernel_gateway_port: int | None = None,
        kernel_init_timeout: float | None = None,
    ) -> None:
        _warn_of_unused("there is no tool server", tool_server_host=tool_server_host, tool_server_port=tool_server_port)
        gateway = {"kernel_gateway_host": kernel_gateway_host, "kernel_gateway_port": kernel_gateway_port}
        _warn_of_unused("there is no kernel gateway", **gateway)
        _warn_of_unused("kernels are forked in milliseconds", kernel_init_timeout=kernel_init_timeout)
        self.name = name
        self.working_dir = None if working_dir is None else Path(check_path("working_dir", working_dir))
        if images_dir is not None:
            kernels()  # their records tell which links are of cells
        self.images_dir = Path(choose_images_dir(images_dir))
        self.approval_timeout = check_seconds("approval_timeout", approval_timeout)
        self.approval_policy = check_policy(approval_policy)
        self.log_level = _check_log_level(log_level)
        self.sandbox = check_switch("sandbox", sandbox)
        self.sandbox_config = sandbox_config
        self.sandbox_level = sandbox_level
        self._rules = choose_sandbox(self.sandbox, sandbox_config, sandbox_level)
        self.kernel_env = check_environment(kernel_env, "kernel_env") or {}
        self.approve_tool_calls = check_switch("approve_tool_calls", approve_tool_calls)
        self.approve_shell_cmds = check_switch("approve_shell_cmds", approve_shell_cmds)
        self.require_shell_escape = check_switch("require_shell_escape", require_shell_escape)
        if require_shell_escape and not approve_shell_cmds:
            allowed = "without approve_shell_cmds=True there would be no way left to run a command"
            raise InvalidInput("require_shell_escape", require_shell_escape, allowed)
        self._functions = check_tools(tools)
        self.output_char_limit = check_output_limit(output_char_limit, EXECUTOR_CHARACTERS)
        self.ipybox = check_switch("ipybox", ipybox)
        self._report_changes = check_switch("report_changes", report_changes)
        self.limits = check_limits(limits)
        self.python = check_python(python)
        self._requirements, self._progress = requirements, progress
        self.connect_timeout = check_seconds("connect_timeout", connect_timeout)
        self._mcp_servers = mcp_servers
        self._executor = self._make_executor()

    def __repr__(self) -> str:
        return f"<CodeExecutor {self.name or 'private'} {self._executor.state}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- the kernel's life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the kernel; raises RuntimeError if it is open already, and StartFailed."""
        _log.setLevel(self.log_level)
        await self._executor.start(kernels(), self.name, self._kernel_options())

    async def stop(self) -> None:
        """Ends what is running, and the kernel if it is private; returns when nothing is left of it."""
        await self._executor.stop(private=self.name is None)

    async def reset(self) -> None:
        """Replaces the kernel by a clean one, even while a cell runs; its variables are lost.

        A cell that is running fails. Cells that wait run in the new kernel. Tool servers that were started are ended.
        """
        await self._executor.reset(self.name, self._kernel_options())

    def cancel(self) -> Awaitable[None]:
        """Begins to stop the cell that is running, if any; its `execute` or `stream` returns what it had written.

        What is returned can be awaited, until the kernel is free; it need not be.
        """
        return self._executor.cancel()

    async def variables(self, timeout: float | None = 10) -> list[Variable]:  # noqa: ASYNC109  # ipybox's way to say it
        """Returns the variables of the kernel, by name; 10,000 at most."""
        return await self._executor.variables(check_seconds("timeout", timeout))

    # -- copies ----------------------------------------------------------------------------------------------

    @overload
    async def branch(
        self,
        name: str,
        *,
        reseed: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109  # it is part of the request
    ) -> Self: ...

    @overload
    async def branch(
        self,
        *,
        names: Sequence[str],
        reseed: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109  # as above
    ) -> list[Self]: ...

    @suggest_awaited_arguments
    async def branch(
        self,
        name: str | None = None,
        *,
        names: Sequence[str] | None = None,
        reseed: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109  # as above
    ) -> Self | list[Self]:
        """Copies the kernel, with all its variables, into a kernel called `name`; with `names`, into several.

        Returns an executor of each, made like this one and not started: use it with `async with`. Raises CannotCopy if
        something in the kernel cannot be copied.
        """
        from kernelbox.core._time_travel import branch, choose_names  # few kernels are copied

        wanted = choose_names(name, names)

        def make(here: Kernels, kernel_id: str) -> list[KernelRecord]:
            return branch(here, kernel_id, wanted, reseed=reseed, timeout=timeout)

        def undo(records: list[KernelRecord]) -> None:
            for record in records:
                kernels().destroy(record.kernel_id)

        await self._executor.between_cells(make, undo=undo)
        made = [self._executor_of(each) for each in wanted]
        return made if name is None else made[0]

    @suggest_awaited_arguments
    async def checkpoint(
        self,
        label: str | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # as above
    ) -> Checkpoint:
        """Freezes a copy of the kernel. `rollback` goes back to it, and so does a kernel that dies."""
        from kernelbox.core._time_travel import checkpoint, drop

        def make(here: Kernels, kernel_id: str) -> Checkpoint:
            return checkpoint(here, kernel_id, label=label, timeout=timeout)

        def undo(made: Checkpoint) -> None:
            drop(kernels(), made.kernel_id, made.number)

        return await self._executor.between_cells(make, undo=undo)

    async def checkpoints(self) -> list[Checkpoint]:
        """Returns the checkpoints, oldest first, with the memory that each has for itself."""
        from kernelbox.core._time_travel import checkpoints

        return await self._executor.between_cells(checkpoints)

    async def rollback(self, to: Checkpoint | int | str | None = None) -> None:
        """Rolls back to a checkpoint, by number or label, or to the last one. Raises CheckpointNotFound.

        A running cell fails, and its error says why. Files are not undone. The checkpoint can be used again.
        """
        from kernelbox.core._time_travel import rollback

        await self._executor.set_back(lambda here, kernel_id: rollback(here, kernel_id, to))

    async def drop(self, checkpoint: Checkpoint | int | str) -> bool:
        """Ends a checkpoint and frees its memory; returns whether it existed."""
        from kernelbox.core._time_travel import choose_number, drop

        def end(here: Kernels, kernel_id: str) -> bool:
            number = choose_number(here, kernel_id, checkpoint)
            return number is not None and drop(here, kernel_id, number)

        return await self._executor.between_cells(end)

    async def promote(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as above
        """Replaces the original, whose executor continues with it, by this branch, and stops this executor."""
        from kernelbox.core._time_travel import promote

        await self._executor.between_cells(lambda here, kernel_id: promote(here, kernel_id, timeout=timeout))
        await self.stop()

    # -- running code ----------------------------------------------------------------------------------------

    @suggest_awaited_arguments
    async def execute(
        self,
        code: str,
        timeout: float | None = _DEFAULT_TIMEOUT,  # noqa: ASYNC109  # it interrupts the cell and keeps what it wrote
        *,
        language: LanguageName = "python",
        output_char_limit: int | None = None,
        budget: int | None = None,
    ) -> CodeExecutionResult:
        """Runs code and returns what it wrote and showed.

        Tool calls and shell commands run without asking, unless the policy denies them. Raises CodeExecutionError,
        and TimeoutError when `timeout` seconds have passed; the cell is then interrupted and the kernel goes on.
        `output_char_limit` is how many characters of text are kept, 0 for all, None for the executor's own limit.
        `budget` is how many characters the result's `text` may have: what tells a model most is kept.
        """
        options = self._cell_options(language, timeout, output_char_limit, budget, asking="accept")
        items = self._executor.stream(options.request(code), options)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, CodeExecutionResult):
                    return item
        raise AssertionError("a stream ends with its result")

    @suggest_arguments
    def stream(
        self,
        code: str,
        timeout: float | None = _DEFAULT_TIMEOUT,
        chunks: bool = False,
        *,
        language: LanguageName = "python",
        exclude_approval_wait: bool = False,
        output_char_limit: int | None = None,
        budget: int | None = None,
    ) -> AsyncGenerator[ApprovalRequest | CodeExecutionChunk | ToolEvent | CodeExecutionResult, None]:
        """Runs code and yields approval requests, with `chunks` also text and ToolEvents, and the result last.

        Leaving the loop interrupts the cell. A `timeout` includes the time spent waiting for approvals, unless
        `exclude_approval_wait` is set; the default timeout does not. Raises as `execute` does; its limit is the
        result's, chunks have none.
        """
        stop_clock = exclude_approval_wait or self.ipybox or timeout is _DEFAULT_TIMEOUT
        options = self._cell_options(language, timeout, output_char_limit, budget, stop_clock=stop_clock)
        return self._executor.stream(options.request(code), options, chunks=chunks)

    def _make_executor(self) -> Executor:
        config, seconds = KernelBoxConfig.from_env(), self.connect_timeout
        toolbox = Toolbox(config, self._mcp_servers, connect_timeout=seconds, sandboxed=self.sandbox)
        return Executor(toolbox, keep_cancelled=not self.ipybox)

    def _executor_of(self, name: str) -> Self:
        """Makes an executor like this one for the kernel of a name."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self), name=name)
        other._executor = other._make_executor()
        return other

    def _kernel_options(self) -> KernelOptions:
        if self.working_dir is not None and not os.path.isdir(self.working_dir):
            raise InvalidInput("working_dir", str(self.working_dir), "there is no such directory")
        return KernelOptions(
            cwd=self.working_dir,
            env=scrubbed_environment(self.kernel_env),
            lifetime="process" if self.name is None else "kernel",
            limits=self.limits,
            sandbox=self._rules,
            guarded=self.require_shell_escape,
            python=self.python,
            requirements=self._requirements,
            progress=self._progress,
        )

    def _cell_options(
        self,
        language: LanguageName,
        timeout: float | None,
        output_char_limit: int | None,
        budget: int | None,
        *,
        asking: Asking = "show",
        stop_clock: bool = False,
    ) -> CellOptions:
        return CellOptions(
            check_language(language),
            check_seconds("timeout", timeout),
            check_output_limit(output_char_limit, self.output_char_limit),
            str(self.images_dir),
            budget=check_budget(budget),
            report_changes=self._report_changes,
            restore_cwd="" if self.working_dir is None else str(self.working_dir),
            policy=self.approval_policy,
            shell="ask" if self.approve_shell_cmds else "accept",
            tools="ask" if self.approve_tool_calls else "accept",
            asking=asking,
            patience=self.approval_timeout,
            stop_clock=stop_clock,
            guarded=self.require_shell_escape,
            functions=self._functions,
            host="ask" if self.approve_tool_calls else "accept",
        )


def _warn_of_unused(why: str, **given: object) -> None:
    """Warns of parameters of ipybox's that have no effect here."""
    for parameter, value in given.items():
        if value is not None:
            text = f"CodeExecutor({parameter}=) has no effect and will be removed: {why} in kernelbox"
            warnings.warn(text, DeprecationWarning, stacklevel=4)


def _check_log_level(level: object) -> str:
    if not isinstance(level, str) or level not in logging.getLevelNamesMapping():
        raise InvalidInput("log_level", level, f"use one of {', '.join(logging.getLevelNamesMapping())}")
    return level
