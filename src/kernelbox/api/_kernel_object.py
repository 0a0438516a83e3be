"""What `Kernel` and `AsyncKernel` share: how the kernel is opened, what its cells are run with, and its record."""

from __future__ import annotations

import os
from typing import Generic, TypeVar

from kernelbox.api._configured import kernels
from kernelbox.base._errors import KernelNotFound
from kernelbox.base._suggestions import suggest_arguments
from kernelbox.core._arguments import check_name, check_switch
from kernelbox.core._cell_options import cell_options, choose_tools
from kernelbox.core._options import KernelOptions, choose_sandbox
from kernelbox.core.approvals._approve_argument import NO_APPROVE, NOT_ALLOWED, check_approve
from kernelbox.host.store._record import KernelRecord
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    from kernelbox.base._limits import Limits
    from kernelbox.core._arguments import LanguageName
    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core._kernels import Kernels
    from kernelbox.core._options import Sandbox, SandboxLevel
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.cells._history import PastCell
    from kernelbox.core.cells._host_functions import HostFunctions, Tools
    from kernelbox.host.store._checkpoint_files import Checkpoint

# Who answers the requests of cells: a function, which for AsyncKernel may be a coroutine function.
Answerer = TypeVar("Answerer")


@dataclass(frozen=True, slots=True)
class CellDefaults:
    """What the cells of a kernel object are run with, unless a call says otherwise."""

    timeout: float | None
    images_dir: str | os.PathLike[str] | None
    policy: ApprovalPolicy | None
    output_char_limit: int | None
    budget: int | None = None
    functions: HostFunctions | None = None


class KernelObject(KernelRecord, Generic[Answerer]):
    """A kernel of one home, found by its name. The record's fields say what was known when they were last read."""

    __slots__ = ("_approve", "_defaults", "_destroys", "_here", "_options", "_starts", "_stopped")

    __signature__ = None  # `inspect` and IPython show that of `__init__`, not the record's

    _approve: Answerer | None

    @suggest_arguments
    def __init__(
        self,
        name: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: dict[str, str] | None = None,
        tags: dict[str, str] | None = None,
        session_name: str | None = None,
        kernel_type: str | None = None,
        limits: Limits | Mapping[str, object] | None = None,
        sandbox: Sandbox | None = None,
        sandbox_level: SandboxLevel | None = None,
        python: str | os.PathLike[str] | None = None,
        requirements: Sequence[str] | str | os.PathLike[str] | None = None,
        progress: Callable[[str], None] | None = None,
        timeout: float | None = None,
        images_dir: str | os.PathLike[str] | None = None,
        approve: Answerer | None = None,
        policy: ApprovalPolicy | None = None,
        output_char_limit: int | None = None,
        budget: int | None = None,
        tools: Tools | None = None,
        destroy: bool | None = None,
    ) -> None:
        chosen = choose_sandbox(sandbox, level=sandbox_level) or sandbox
        options = KernelOptions(
            session_name, tags, cwd, env, "kernel", kernel_type, limits, chosen, python, requirements, progress
        )
        defaults = CellDefaults(timeout, images_dir, policy, output_char_limit, budget, choose_tools(tools))
        self._set_up(kernels(), name, options, defaults, destroy=destroy)
        self._approve = check_approve(approve)
        # Options that cannot be used are rejected before a kernel is opened.
        self._cell_options("python", None, asks=approve is not None)
        self._prepare_loop()
        self._open()

    def _set_up(
        self,
        here: Kernels,
        name: str | None,
        options: KernelOptions,
        defaults: CellDefaults,
        *,
        destroy: bool | None = False,
    ) -> Self:
        private = name is None
        name = f"kernel-{os.urandom(6).hex()}" if name is None else check_name(name)
        super().__init__("", "", name, status="unknown")
        self._here, self._defaults, self._approve = here, defaults, None
        self._options = options.ending_with_process() if private else options
        self._destroys = private if destroy is None else check_switch("destroy", destroy)
        self._starts, self._stopped = 0, False
        return self

    def _prepare_loop(self) -> None:
        """Makes what an object needs on an event loop."""

    def _open(self) -> None:
        """Opens the kernel, where that does not wait for `start`."""

    def _object_of(self, record: KernelRecord) -> Self:
        """Makes the object of a copy of this kernel. Its cells are run as those of this one."""
        other = type(self).__new__(type(self))
        other._set_up(self._here, record.name, self._options.changed(session_name=None), self._defaults)
        other._approve = self._approve
        other._prepare_loop()
        return other._adopt(record)

    @property
    def home(self) -> str:
        """The directory that keeps the kernel's record: the same name in another home is another kernel."""
        return self._here.config.home

    @property
    def record(self) -> KernelRecord:
        """The record alone, as a value that can be changed and kept."""
        return KernelRecord(**self.to_dict())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.status} pid={self.pid}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KernelRecord):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # as for records: the fields change

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the record: another process passes it to `execute`, or its name to `Kernel`."""
        return KernelRecord, tuple(self.to_dict().values())

    def _history(self) -> list[PastCell]:
        return self._here.kernel(self._here.get(self.name)).history()

    def _save_notebook(self, path: str | os.PathLike[str]) -> None:
        import json

        notebook = self._here.kernel(self._here.get(self.name)).notebook()
        with open(path, "w", encoding="utf-8") as file:
            json.dump(notebook, file, ensure_ascii=False, indent=1)
            file.write("\n")

    def _branch(
        self, name: str | None, names: Sequence[str] | None, reseed: bool, timeout: float | None
    ) -> list[KernelRecord]:
        from kernelbox.core._time_travel import branch, choose_names  # few kernels are copied

        return branch(self._here, self._open_name(), choose_names(name, names), reseed=reseed, timeout=timeout)

    def _checkpoint(self, label: str | None, timeout: float | None) -> Checkpoint:
        from kernelbox.core._time_travel import checkpoint

        return checkpoint(self._here, self._open_name(), label=label, timeout=timeout)

    def _checkpoints(self) -> list[Checkpoint]:
        from kernelbox.core._time_travel import checkpoints

        return checkpoints(self._here, self._open_name())

    def _rollback(self, to: Checkpoint | int | str | None) -> Self:
        from kernelbox.core._time_travel import rollback

        return self._adopt(rollback(self._here, self._open_name(), to))

    def _drop(self, checkpoint: Checkpoint | int | str) -> bool:
        from kernelbox.core._time_travel import choose_number, drop

        number = choose_number(self._here, self._open_name(), checkpoint)
        return number is not None and drop(self._here, self.kernel_id, number)

    def _promote(self, timeout: float | None) -> KernelRecord:
        from kernelbox.core._time_travel import promote

        original = promote(self._here, self._open_name(), timeout=timeout)
        self._stopped, self.status = True, "dead"
        return original

    def _adopt(self, record: KernelRecord) -> Self:
        """Takes over what a record says."""
        for name in KernelRecord.__match_args__:
            setattr(self, name, getattr(record, name))
        return self

    def _open_name(self) -> str:
        """Returns the name; raises KernelNotFound after `destroy`, which must not open a kernel by accident."""
        if self._stopped:
            raise KernelNotFound(self.name, self._here.config.home)
        return self.name

    def _handle(self) -> KernelHandle:
        return self._here.kernel(self._here.get(self._open_name()))

    def _cell_options(
        self,
        language: LanguageName,
        timeout: float | None,
        images_dir: str | os.PathLike[str] | None = None,
        policy: ApprovalPolicy | None = None,
        output_char_limit: int | None = None,
        budget: int | None = None,
        tools: Tools | None = None,
        *,
        asks: bool,
    ) -> CellOptions:
        """Returns what a cell is run with; `asks` says whether there is someone to ask."""
        defaults = self._defaults
        policy = defaults.policy if policy is None else policy
        if policy is not None:
            from kernelbox.core.approvals._approval_policy import check_policy

            check_policy(policy)
        return cell_options(
            self._here.config,
            self._here.home,
            language=language,
            timeout=defaults.timeout if timeout is None else timeout,
            images_dir=defaults.images_dir if images_dir is None else images_dir,
            output_char_limit=defaults.output_char_limit if output_char_limit is None else output_char_limit,
            budget=defaults.budget if budget is None else budget,
            policy=policy,
            shell="ask" if asks or policy is not None else "accept",
            asking="show" if asks else "reject",
            unasked=NO_APPROVE if policy is None else NOT_ALLOWED,
            functions=defaults.functions if tools is None else choose_tools(tools),
            host="ask" if asks else "accept",
        )
