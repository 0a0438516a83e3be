"""The protocol of an engine: how a kind of kernel is launched, reached, watched and ended.

The core knows only these protocols. So an engine on another machine could join the two that run kernels as processes of
this machine (`own` and `jupyter`, which share `_local.py`).
"""

from __future__ import annotations

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, Self

    from kernelbox.base._config import EngineName, KernelBoxConfig
    from kernelbox.base._interpreter import Interpreter
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._checkpoint_files import Checkpoint
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._kernel_state import KernelState
    from kernelbox.wire._messages import Message, Output, Release, Spawned
    from kernelbox.wire._timeout_ladder import Holder

    class Connection(Protocol):
        """One client's connection to the process of a kernel; it carries one execution at a time."""

        ended: bool

        inherited: bool
        """Whether this process is a fork of the one that opened it. Then it has ended here, but not in the parent."""

        @property
        def idle(self) -> bool:
            """Whether it can carry another execution."""

        def fileno(self) -> int:
            """Returns a descriptor that becomes readable when `receive` may return something."""

        def death_fileno(self) -> int:
            """Returns a descriptor that becomes readable when the kernel ends; -1 if there is none."""

        def send(self, message: Message) -> None:
            """Sends a message without waiting."""

        @property
        def unsent(self) -> bool:
            """Whether a part of the messages is not sent yet; `flush` continues when `fileno` is writable."""

        def flush(self) -> None: ...

        def receive(self, timeout: float | None) -> list[Message]:
            """Waits for messages. Returns none if the time is up or, with `ended` set, if the kernel is gone."""

        def interrupt(self, execution_id: str, *, harder: bool = False) -> None:
            """Interrupts an execution, or any with an empty id; `harder` by every means that keeps the process."""

        def interrupt_holder(self) -> bool:
            """Interrupts what occupies the kernel, harder if necessary; returns whether something was interrupted."""

        def holder(self, execution_id: str) -> Holder:
            """Returns what occupies the kernel from an execution's view, even while the kernel cannot answer."""

        @property
        def awaits_rest(self) -> bool:
            """Whether only a part of a message has arrived."""

        @property
        def lacks_rest(self) -> bool:
            """Whether the rest of a message is missing for longer than a kernel takes to send it."""

        def still_serves(self) -> bool:
            """Tells whether the kernel still accepts connections after this one ended; gives it a moment to end."""

        def cause(self, farewell: str = "") -> str:
            """Returns why the kernel has ended; `farewell` is its last message."""

        def leftovers(self, execution_id: str) -> list[Output]:
            """Returns the output that the kernel had written but not sent when it ended."""

        def close(self) -> None: ...

    class Fostering(Protocol):
        """A copy that is being made. `with` closes what was opened for it."""

        token: str
        """What the kernel is asked to name the copy by."""

        def fileno(self) -> int:
            """Returns a descriptor that becomes readable when `wait` returns."""

        def wait(self) -> Spawned:
            """Waits for the copy; raises CannotCopy."""
            ...

        def settle(self) -> None:
            """Confirms the copy. An heir then takes the place of the process before it."""
            ...

        def __enter__(self) -> Self: ...

        def __exit__(self, *_: object) -> None: ...

    class Engine(Protocol):
        """How a kind of kernel is launched, reached, watched and ended."""

        name: EngineName
        connection_file: str
        """The file in a kernel's directory that its record shows as `connection_file`."""
        uses_template: bool
        """Whether kernels are forked from a warm template, if the system allows it."""
        describes_itself: bool
        """Whether a kernel answers `kernel_info`. If not, all kernels are the same, and the host knows the answer."""
        can_confine: bool
        """Whether kernels can be sandboxed and guarded."""
        can_choose_python: bool
        """Whether a kernel can run in an interpreter that its opener chooses."""
        logs_cells: bool
        """Whether kernels log their cells with all outputs. If not, they only remember their inputs."""

        def check(self, kernel_type: str) -> None:
            """Raises InvalidInput for a kernel type that this engine cannot run."""

        def launch(self, launch: Launch) -> None:
            """Starts the process of a kernel, and writes it into the record. Raises StartFailed or OSError."""

        def connect(self, record: KernelRecord, directory: KernelDirectory) -> Connection:
            """Returns a new connection; raises OSError if the kernel is gone."""

        def state(self, directory: KernelDirectory) -> KernelState | None:
            """Returns the state that a kernel reports."""

        def may_be_held(self, record: KernelRecord) -> bool:
            """Tells whether a thread of a cell may occupy a kernel, though its state does not say so."""

        def is_alive(self, record: KernelRecord) -> bool:
            """Tells whether the process of a record is alive."""

        def find_obstacle(self, directory: KernelDirectory) -> str:
            """Returns why clients cannot reach a kernel, even if its process is alive; "" if they can."""

        def wait(self, record: KernelRecord, timeout: float) -> bool:
            """Waits for the process of a record to end; returns whether it has."""

        def end(self, record: KernelRecord, directory: KernelDirectory, reason: str) -> None:
            """Ends the process of a record and everything it started; returns when all of them are gone."""

        def cause(self, record: KernelRecord, directory: KernelDirectory, *, patience: float) -> str:
            """Returns why the process of a record ended; waits at most `patience` for the note about it."""

        def leftovers(self, record: KernelRecord, directory: KernelDirectory, execution_id: str) -> list[Output]:
            """Returns what an execution had written but not sent when the process of a record ended."""

        def claim_report(self, record: KernelRecord, directory: KernelDirectory) -> bool:
            """Claims the report of a death for the caller; False if it was already reported, or there was none."""

        def was_reported(self, record: KernelRecord, directory: KernelDirectory) -> bool:
            """Tells whether the death of a record's process was already reported."""

        def find_refusals(self, record: KernelRecord, *, branch: bool) -> list[str]:
            """Returns why a kernel of this kind cannot be copied; empty if it can."""
            ...

        def foster(self, plan: CopyPlan) -> Fostering:
            """Prepares for a copy, which the kernel or the checkpoint then makes; raises CannotCopy."""
            ...

        def require_walls(self, record: KernelRecord, spawned: Spawned) -> None:
            """Ends a process that lacks walls of its record, according to the system, and raises StartFailed."""
            ...

        def release_checkpoints(self, directory: KernelDirectory, release: Release) -> None:
            """Ends checkpoints of a kernel; `why` in the release is a key of WHY_EVICTED."""
            ...

        def measure_checkpoints(self, directory: KernelDirectory, *, limit: int = 0) -> list[Checkpoint]:
            """Returns the checkpoints of a kernel, measured. Where they exceed a limit together, the oldest is gone."""
            ...

        def tidy(self, runtime: Place, secret: bytes) -> None:
            """Ends the engine's other processes, and removes their files; `secret` signs its locks."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What an engine needs to start the process of a kernel.

    `opening` is the read end of a pipe. If the opener closes it before it reports the end of the start, the process is
    ended. `lifeline` shows the end of the kernel's owner; it is -1 without one. Kernels of our own engine run in
    `interpreter`, and keepers of other engines in the host's. `disk_before` is the size of the working directory in
    bytes, if a limit depends on it.
    """

    record: KernelRecord
    directory: KernelDirectory
    environment: dict[str, str]
    config: KernelBoxConfig
    opening: int
    lifeline: int
    interpreter: Interpreter
    disk_before: int = 0
    without: tuple[str, ...] = ()
    """Directories that `.pth` files name, and where the kernel's template must not look for modules."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A copy to make of the kernel `source`, or of its checkpoint `thaw`.

    It becomes checkpoint number `checkpoint`, or the process of `record`. An `heir` replaces the process that the
    record names. `checkpoint_memory` is what all checkpoints may have for themselves, and
    `checkpoint_age` the seconds after which this one is dropped, 0 for never.
    """

    source: KernelRecord
    source_directory: KernelDirectory
    record: KernelRecord
    directory: KernelDirectory
    checkpoint: int = 0
    thaw: int = 0
    heir: bool = False
    disk_before: int = 0
    home: int = 0
    checkpoint_memory: int = 0
    checkpoint_age: float = 0.0
