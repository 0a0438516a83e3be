"""Kernel: one kernel as an object, for code that blocks."""

from __future__ import annotations

import os
from typing import overload

from kernelbox.api._configured import warn_on_loop
from kernelbox.api._kernel_object import CellDefaults, KernelObject
from kernelbox.base._suggestions import suggest_arguments
from kernelbox.core._executor_values import read_completions, read_variables
from kernelbox.core._options import KernelOptions
from kernelbox.core.cells._attempts import attempts, check_attempts, run_attempts
from kernelbox.shells._blocking_cell import holds_commands, run_cell, stream_cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Self

    from kernelbox.api._job import Job
    from kernelbox.core._arguments import LanguageName
    from kernelbox.core._executor_values import ToolEvent, Variable
    from kernelbox.core._kernel_data import Files
    from kernelbox.core._kernels import Kernels
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.approvals._requests import Approve, SyncApprovalRequest
    from kernelbox.core.cells._history import PastCell
    from kernelbox.core.cells._host_functions import Tools
    from kernelbox.host.store._checkpoint_files import Checkpoint
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._results import ExecutionResult, OutputItem

# Seconds that a kernel has to answer a question. It answers after the cell that is running.
_PATIENCE = 10.0


class Kernel(KernelObject["Approve"]):
    """A kernel that holds variables and runs cells one at a time: the one called `name`, or a private one.

    It is opened when the object is made. A private kernel ends with the `with` block, or with this process. A named one
    lives until it is destroyed, so other processes can use it by its name; `destroy=True` ends it with the block too.
    `cwd` to `python` describe the kernel as in `get_or_create`. `timeout` to `budget` are defaults
    for its cells.

    The object finds its kernel by name. A death is reported once; the next cell opens a fresh kernel, unless
    it has come back from a checkpoint.
    """

    __slots__ = ()

    @classmethod
    def of(cls, here: Kernels, record: KernelRecord, options: KernelOptions) -> Kernel:
        """Makes the object of a kernel that was opened with these options."""
        defaults = CellDefaults(None, None, None, None)
        return cls.__new__(cls)._set_up(here, record.name, options, defaults)._adopt(record)

    def _open(self) -> None:
        warn_on_loop("Kernel()")
        holds_commands(self._approve, self._defaults.policy)
        self._adopt(self._here.get_or_create(self.name, self._options))

    # -- its life --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Opens the kernel if it is not open. Calls are counted: as many of `stop` end a private kernel."""
        if self._stopped:
            self._adopt(self._here.get_or_create(self.name, self._options))
            self._stopped = False
        self._starts += 1
        return self

    def stop(self) -> None:
        """Undoes one `start`; the last one destroys the kernel if it is private or was made with `destroy=True`."""
        self._starts = max(0, self._starts - 1)
        if self._starts == 0 and self._destroys:
            self.destroy()

    def refresh(self) -> Self:
        """Reads the record again, with what the kernel uses; raises KernelNotFound."""
        return self._adopt(self._here.look(self.name))

    def interrupt(self) -> bool:
        """Interrupts what the kernel is running; returns whether something was interrupted."""
        return self._here.interrupt(self._open_name())

    def restart(self) -> Self:
        """Starts a new process under the same name and id; the variables are lost."""
        return self._adopt(self._here.restart(self._open_name()))

    def destroy(self) -> bool:
        """Ends the kernel, its children and its files; returns whether there was one. `start` opens it again."""
        self._stopped, self.status = True, "dead"
        return self._here.destroy(self.name)

    # -- running code ----------------------------------------------------------------------------------------

    @suggest_arguments
    def execute(
        self,
        code: str,
        *,
        language: LanguageName = "python",
        timeout: float | None = None,
        images_dir: str | os.PathLike[str] | None = None,
        approve: Approve | None = None,
        policy: ApprovalPolicy | None = None,
        output_char_limit: int | None = None,
        budget: int | None = None,
        tools: Tools | None = None,
    ) -> ExecutionResult:
        """Runs code and returns the result; errors of the code are in the result and are not raised.

        `timeout` is in seconds, and interrupts the cell; the variables stay. `approve` is called with each shell
        command and tool call, which waits meanwhile: True accepts, a string rejects with that reason. `tools` are the
        functions of this program that the cell may call, in place of the kernel's own.
        """
        warn_on_loop("Kernel.execute()")
        approve = self._approve if approve is None else approve
        holds_commands(approve, policy)  # raises InvalidInput for what cannot be asked
        asks = approve is not None
        options = self._cell_options(language, timeout, images_dir, policy, output_char_limit, budget, tools, asks=asks)
        return run_cell(self._here, self._open_name(), code, options, approve, self._options)

    def bash(self, code: str, *, timeout: float | None = None) -> ExecutionResult:
        """Runs shell commands in the kernel's own bash, which keeps its variables and directory."""
        return self.execute(code, language="bash", timeout=timeout)

    @suggest_arguments
    def stream(
        self,
        code: str,
        *,
        language: LanguageName = "python",
        timeout: float | None = None,
        images_dir: str | os.PathLike[str] | None = None,
        approve: Approve | bool | None = None,
        policy: ApprovalPolicy | None = None,
        output_char_limit: int | None = None,
        budget: int | None = None,
        tools: Tools | None = None,
    ) -> Iterator[OutputItem | SyncApprovalRequest | ToolEvent | ExecutionResult]:
        """Runs code and yields each output as it comes, the result last. Leaving the loop interrupts the cell.

        With `approve=True` the requests are yielded too, to be answered before the next item is asked for.
        """
        warn_on_loop("Kernel.stream()")
        approve = approve or self._approve
        holds_commands(approve, policy)  # raises InvalidInput for what cannot be asked
        asks = approve is not None
        options = self._cell_options(language, timeout, images_dir, policy, output_char_limit, budget, tools, asks=asks)
        return stream_cell(self._here, self._open_name(), code, options, approve, may_pause=True, new=self._options)

    @suggest_arguments
    def retry(
        self,
        code: str,
        on_error: Callable[[ExecutionResult, int], str | None],
        *,
        max_attempts: int | None = None,
        language: LanguageName = "python",
        timeout: float | None = None,
        budget: int | None = None,
        tools: Tools | None = None,
    ) -> ExecutionResult:
        """Runs code until it succeeds, asking `on_error(result, attempt)` for new code after each failure.

        If it returns None, the same code runs again. After `max_attempts` failures the status is max_attempts_exceeded.
        """
        allowed = check_attempts(on_error, max_attempts, self._here.config.max_retries)

        def run(code: str) -> ExecutionResult:
            return self.execute(code, language=language, timeout=timeout, budget=budget, tools=tools)

        return run_attempts(attempts(code, allowed), run, on_error)

    @suggest_arguments
    def submit(self, code: str, *, language: LanguageName = "python", timeout: float | None = None) -> Job:
        """Begins to run code and returns at once; the job has `result()`, `events()` and `cancel()`."""
        from kernelbox.api._job import Job  # an event loop in a thread runs it

        options = self._cell_options(language, timeout, asks=self._approve is not None)
        return Job.of(self._here, self._open_name(), code, options, self._approve, self._options)

    # -- looking ---------------------------------------------------------------------------------------------

    def variables(self) -> list[Variable]:
        """Returns the variables of the kernel, by name."""
        return read_variables(self.name, self._ask("variables", {}))

    def complete(self, code: str, cursor_pos: int | None = None) -> list[str]:
        """Returns what code can be completed with at a position, the end by default."""
        position = len(code) if cursor_pos is None else cursor_pos
        return read_completions(self.name, code, self._ask("complete", {"code": code, "cursor_pos": position}))

    def history(self) -> list[PastCell]:
        """Returns the cells that ran under this name, oldest first, also those from before a restart or a death.

        The log is bounded: some thousand ordinary cells are kept. `lost` of a cell says why its variables are gone.
        """
        return self._history()

    def save_notebook(self, path: str | os.PathLike[str]) -> None:
        """Writes the history with its outputs as a Jupyter notebook, with a remark where variables were lost."""
        self._save_notebook(path)

    # -- copies ----------------------------------------------------------------------------------------------

    @overload
    def branch(self, name: str, *, reseed: bool = True, timeout: float | None = None) -> Self: ...

    @overload
    def branch(self, *, names: Sequence[str], reseed: bool = True, timeout: float | None = None) -> list[Self]: ...

    @suggest_arguments
    def branch(
        self,
        name: str | None = None,
        *,
        names: Sequence[str] | None = None,
        reseed: bool = True,
        timeout: float | None = None,
    ) -> Self | list[Self]:
        """Copies the live kernel, with all its variables, into a kernel of its own; with `names`, into several.

        A running cell is waited for, at most `timeout` seconds; then KernelBusy is raised. A branch has new random
        numbers, unless `reseed` is False. Raises CannotCopy if something in the kernel cannot be copied.
        """
        made = [self._object_of(record) for record in self._branch(name, names, reseed, timeout)]
        return made if name is None else made[0]

    @suggest_arguments
    def checkpoint(self, label: str | None = None, *, timeout: float | None = None) -> Checkpoint:
        """Freezes a copy of the kernel. `rollback` goes back to it, and so does a kernel that dies."""
        return self._checkpoint(label, timeout)

    def checkpoints(self) -> list[Checkpoint]:
        """Returns the checkpoints, oldest first, with the memory that each has for itself."""
        return self._checkpoints()

    def rollback(self, to: Checkpoint | int | str | None = None) -> Self:
        """Rolls back to a checkpoint, by number or label, or to the last one. Raises CheckpointNotFound.

        A running cell is ended, and its result says why. Files are not undone. The checkpoint can be used again.
        """
        return self._rollback(to)

    def drop(self, checkpoint: Checkpoint | int | str) -> bool:
        """Ends a checkpoint and frees its memory; returns whether it existed."""
        return self._drop(checkpoint)

    def promote(self, *, timeout: float | None = None) -> Self:
        """Replaces the original by this branch, and returns the original, which keeps its name and id.

        The branch no longer exists then, and the variables of the original are lost. Errors are those of `branch`.
        """
        return self._object_of(self._promote(timeout))

    # -- data ------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Any:
        """Returns the value of a variable; raises KeyError. `kernel["df"]` does the same.

        JSON values, bytes, numpy arrays, and tables of pandas, polars and pyarrow can be passed on. Nothing is pickled.
        """
        from kernelbox.core._kernel_data import get_value

        return get_value(self._handle(), name)

    def set(self, name: str, value: object) -> None:
        """Sets a variable to a copy of a value; `kernel["df"] = value` does the same."""
        from kernelbox.core._kernel_data import set_value

        set_value(self._handle(), name, value)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def __setitem__(self, name: str, value: object) -> None:
        self.set(name, value)

    @property
    def files(self) -> Files:
        """The files that the kernel sees, to read, write, list, move and remove."""
        from kernelbox.core._kernel_data import Files

        return Files(self._handle)

    def _ask(self, what: str, args: dict[str, object]) -> dict[str, Any]:
        return self._handle().query(what, args, patience=_PATIENCE)
