"""AsyncKernel: one kernel as an object, for code on an event loop. The same names and results as `Kernel`."""

from __future__ import annotations

import asyncio
import inspect
import os
from contextlib import aclosing
from typing import overload

from kernelbox.api._kernel_files import AsyncFiles
from kernelbox.api._kernel_object import KernelObject
from kernelbox.base._suggestions import suggest_arguments, suggest_awaited_arguments
from kernelbox.core._executor_values import read_completions, read_variables
from kernelbox.core._kernel_data import get_value, set_value
from kernelbox.core._kernel_handle import next_by_name
from kernelbox.core.approvals._approve_argument import check_approve
from kernelbox.core.cells._attempts import attempts, check_attempts
from kernelbox.shells._asyncio_connection import in_thread
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.shells._asyncio_stream import stream_named
from kernelbox.tools._toolbox import Toolbox
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from typing import Any, Self

    from kernelbox.api._job import AsyncJob
    from kernelbox.api._kernel import Kernel
    from kernelbox.core._arguments import LanguageName
    from kernelbox.core._executor_values import ToolEvent, Variable
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.approvals._requests import ApprovalRequest
    from kernelbox.core.cells._history import PastCell
    from kernelbox.core.cells._host_functions import Tools
    from kernelbox.host.store._checkpoint_files import Checkpoint
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.shells._asyncio_asks import AsyncApprove
    from kernelbox.wire._results import OutputItem


class AsyncKernel(KernelObject["AsyncApprove"]):
    """A kernel that holds variables and runs cells one at a time: the one called `name`, or a private one.

    It is opened by `async with`, by `start`, or by its first cell. Everything else works as in `Kernel`. Cancelling a
    task that awaits a cell interrupts the cell; the variables stay.
    """

    __slots__ = ("_kernels", "_starting")

    @classmethod
    def of(cls, kernel: Kernel) -> AsyncKernel:
        """Makes the object for event loops of a `Kernel`, with the same options."""
        other = cls.__new__(cls)._set_up(kernel._here, kernel.name, kernel._options, kernel._defaults)
        if kernel._approve is not None:
            from kernelbox.api._job import answer_in_thread

            other._approve = answer_in_thread(kernel._approve)
        other._prepare_loop()
        return other._adopt(kernel.record)

    # -- its life --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> Self:
        """Opens the kernel if it is not open. Calls are counted: as many of `stop` end a private kernel."""
        async with self._starting:
            if self._stopped or not self._starts:
                undo = self._undo_start if self._destroys else None
                self._adopt(await in_thread(self._here.get_or_create, self.name, self._options, undo=undo))
                self._stopped = False
            self._starts += 1
        return self

    async def stop(self) -> None:
        """Undoes one `start`; the last one destroys the kernel if it is private or was made with `destroy=True`."""
        await asyncio.shield(asyncio.ensure_future(self._stop()))

    async def _stop(self) -> None:
        async with self._starting:
            self._starts = max(0, self._starts - 1)
            if self._starts == 0:
                if self._destroys:
                    await self.destroy()
                await self._kernels.close_tools()

    def _undo_start(self, record: KernelRecord) -> None:
        self._here.destroy(record.kernel_id)

    async def refresh(self) -> Self:
        """Reads the record again, with what the kernel uses; raises KernelNotFound."""
        return self._adopt(await in_thread(self._here.look, self.name))

    async def interrupt(self) -> bool:
        """Interrupts what the kernel is running; returns whether something was interrupted."""
        return await self._kernels.interrupt(self._open_name())

    async def restart(self) -> Self:
        """Starts a new process under the same name and id; the variables are lost."""
        return self._adopt(await self._kernels.restart(self._open_name()))

    async def destroy(self) -> bool:
        """Ends the kernel, its children and its files; returns whether there was one. `start` opens it again."""
        self._stopped, self.status = True, "dead"
        await self._kernels.until_opened()  # for a cell whose task was cancelled
        return await self._kernels.destroy(self.name)

    # -- running code ----------------------------------------------------------------------------------------

    @suggest_awaited_arguments
    async def execute(
        self,
        code: str,
        *,
        language: LanguageName = "python",
        timeout: float | None = None,  # noqa: ASYNC109  # it interrupts the cell and keeps what it wrote
        images_dir: str | os.PathLike[str] | None = None,
        approve: AsyncApprove | None = None,
        policy: ApprovalPolicy | None = None,
        output_char_limit: int | None = None,
        budget: int | None = None,
        tools: Tools | None = None,
    ) -> ExecutionResult:
        """Runs code and returns the result; errors of the code are in the result and are not raised.

        `timeout` is in seconds, and interrupts the cell; the variables stay. `approve`, which may be a coroutine
        function, is called with each shell command and tool call: True accepts, a string rejects with that reason.
        `tools` are the functions of this program that the cell may call, in place of the kernel's own.
        """
        answers = check_approve(approve or self._approve)
        asks = answers is not None
        options = self._cell_options(language, timeout, images_dir, policy, output_char_limit, budget, tools, asks=asks)
        async with aclosing(stream_named(self._kernels, self._open_name(), code, options, answers)) as items:
            async for item in items:
                if isinstance(item, ExecutionResult):
                    return item
        raise AssertionError("a stream ends with its result")

    async def bash(self, code: str, *, timeout: float | None = None) -> ExecutionResult:  # noqa: ASYNC109  # as above
        """Runs shell commands in the kernel's own bash, which keeps its variables and directory."""
        return await self.execute(code, language="bash", timeout=timeout)

    @suggest_arguments
    def stream(
        self,
        code: str,
        *,
        language: LanguageName = "python",
        timeout: float | None = None,
        images_dir: str | os.PathLike[str] | None = None,
        approve: AsyncApprove | bool | None = None,
        policy: ApprovalPolicy | None = None,
        output_char_limit: int | None = None,
        budget: int | None = None,
        tools: Tools | None = None,
    ) -> AsyncGenerator[OutputItem | ApprovalRequest | ToolEvent | ExecutionResult, None]:
        """Runs code and yields each output as it comes, the result last. Leaving the loop interrupts the cell.

        With `approve=True` the requests are yielded too; the cell waits until each is answered.
        """
        answers = None if approve is True else check_approve(approve or self._approve)
        asks = approve is True or answers is not None
        options = self._cell_options(language, timeout, images_dir, policy, output_char_limit, budget, tools, asks=asks)
        return stream_named(self._kernels, self._open_name(), code, options, answers)

    @suggest_awaited_arguments
    async def retry(
        self,
        code: str,
        on_error: Callable[[ExecutionResult, int], str | Awaitable[str | None] | None],
        *,
        max_attempts: int | None = None,
        language: LanguageName = "python",
        timeout: float | None = None,  # noqa: ASYNC109  # as above
        budget: int | None = None,
        tools: Tools | None = None,
    ) -> ExecutionResult:
        """Runs code until it succeeds, asking `on_error(result, attempt)` for new code after each failure.

        If it returns None, the same code runs again. After `max_attempts` failures the status is max_attempts_exceeded.
        """
        steps = attempts(code, check_attempts(on_error, max_attempts, self._here.config.max_retries))
        step = next(steps)
        try:
            while True:
                if isinstance(step, str):
                    result = await self.execute(step, language=language, timeout=timeout, budget=budget, tools=tools)
                    step = steps.send(result)
                    continue
                try:
                    answer = on_error(step.result, step.attempt)
                    better = await answer if inspect.isawaitable(answer) else answer
                except BaseException as exc:  # noqa: BLE001  # it is raised again, with the attempts
                    step = steps.throw(exc)
                else:
                    step = steps.send(better)
        except StopIteration as stop:
            last: ExecutionResult = stop.value
            return last

    @suggest_arguments
    def submit(self, code: str, *, language: LanguageName = "python", timeout: float | None = None) -> AsyncJob:
        """Begins to run code and returns at once; the job has `result()`, `events()` and `cancel()`."""
        from kernelbox.api._job import AsyncJob

        options = self._cell_options(language, timeout, asks=self._approve is not None)
        return AsyncJob(self._kernels, self._open_name(), code, options, self._approve)

    # -- looking ---------------------------------------------------------------------------------------------

    async def variables(self) -> list[Variable]:
        """Returns the variables of the kernel, by name."""
        return read_variables(self.name, await self._ask("variables", {}))

    async def complete(self, code: str, cursor_pos: int | None = None) -> list[str]:
        """Returns what code can be completed with at a position, the end by default."""
        position = len(code) if cursor_pos is None else cursor_pos
        return read_completions(self.name, code, await self._ask("complete", {"code": code, "cursor_pos": position}))

    async def history(self) -> list[PastCell]:
        """Returns the cells that ran under this name, oldest first, also those from before a restart or a death.

        The log is bounded: some thousand ordinary cells are kept. `lost` of a cell says why its variables are gone.
        """
        return await in_thread(self._history)

    async def save_notebook(self, path: str | os.PathLike[str]) -> None:
        """Writes the history with its outputs as a Jupyter notebook, with a remark where variables were lost."""
        await in_thread(self._save_notebook, path)

    # -- copies ----------------------------------------------------------------------------------------------

    @overload
    async def branch(
        self,
        name: str,
        *,
        reseed: bool = True,
        timeout: float | None = None,  # noqa: ASYNC109  # as above
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
        """Copies the live kernel, with all its variables, into a kernel of its own; with `names`, into several.

        A running cell is waited for, at most `timeout` seconds; then KernelBusy is raised. A branch has new random
        numbers, unless `reseed` is False. Raises CannotCopy if something in the kernel cannot be copied.
        """
        records = await in_thread(self._branch, name, names, reseed, timeout, undo=self._undo_branches)
        made = [self._object_of(record) for record in records]
        return made if name is None else made[0]

    @suggest_awaited_arguments
    async def checkpoint(
        self,
        label: str | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # as above
    ) -> Checkpoint:
        """Freezes a copy of the kernel. `rollback` goes back to it, and so does a kernel that dies."""
        return await in_thread(self._checkpoint, label, timeout, undo=self._drop)

    async def checkpoints(self) -> list[Checkpoint]:
        """Returns the checkpoints, oldest first, with the memory that each has for itself."""
        return await in_thread(self._checkpoints)

    async def rollback(self, to: Checkpoint | int | str | None = None) -> Self:
        """Rolls back to a checkpoint, by number or label, or to the last one. Raises CheckpointNotFound.

        A running cell is ended, and its result says why. Files are not undone. The checkpoint can be used again.
        """
        return await in_thread(self._rollback, to)

    async def drop(self, checkpoint: Checkpoint | int | str) -> bool:
        """Ends a checkpoint and frees its memory; returns whether it existed."""
        return await in_thread(self._drop, checkpoint)

    async def promote(self, *, timeout: float | None = None) -> Self:  # noqa: ASYNC109  # as above
        """Replaces the original by this branch, and returns the original, which keeps its name and id.

        The branch no longer exists then, and the variables of the original are lost. Errors are those of `branch`.
        """
        return self._object_of(await in_thread(self._promote, timeout))

    # -- data ------------------------------------------------------------------------------------------------

    async def get(self, name: str) -> Any:
        """Returns the value of a variable; raises KeyError.

        JSON values, bytes, numpy arrays, and tables of pandas, polars and pyarrow can be passed on. Nothing is pickled.
        """
        return await in_thread(lambda: get_value(self._handle(), name))

    async def set(self, name: str, value: object) -> None:
        """Sets a variable to a copy of a value."""
        await in_thread(lambda: set_value(self._handle(), name, value))

    @property
    def files(self) -> AsyncFiles:
        """The files that the kernel sees, to read, write, list, move and remove."""
        return AsyncFiles(self._handle)

    def _prepare_loop(self) -> None:
        toolbox = Toolbox(self._here.config, sandboxed=bool(self._options.sandbox))
        self._kernels = AsyncKernels(self._here, self._options, toolbox, advice=next_by_name(self.name))
        self._starting = asyncio.Lock()

    def _undo_branches(self, records: list[KernelRecord]) -> None:
        for record in records:
            self._here.destroy(record.kernel_id)

    async def _ask(self, what: str, args: dict[str, Any]) -> dict[str, Any]:
        return await self._kernels.ask(self._open_name(), what, args)
