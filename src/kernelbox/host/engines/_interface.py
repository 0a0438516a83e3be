"""What an engine is: how a kind of kernel is launched, reached, watched and ended.

The core knows only these protocols, so that an engine on another machine can join the two that run kernels as
processes of this machine (`own` and `jupyter`; `_local.py` is what they share).
"""

from __future__ import annotations

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from kernelbox.base._config import EngineName, KernelBoxConfig
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._execution import Holder
    from kernelbox.wire._kernel_state import KernelState
    from kernelbox.wire._messages import Message, Output

    class Connection(Protocol):
        """One client's way to the process of a kernel; it carries one execution at a time."""

        ended: bool

        inherited: bool
        """Whether the process that opened it was forked, and we are the fork: it is ended for us, and not for it."""

        @property
        def idle(self) -> bool:
            """Whether it can carry another execution."""
            ...

        def fileno(self) -> int:
            """Returns a descriptor that becomes readable when `receive` may have something."""
            ...

        def death_fileno(self) -> int:
            """Returns a descriptor that becomes readable when the kernel ends; -1 where there is none."""
            ...

        def send(self, message: Message) -> None:
            """Sends a message without waiting."""
            ...

        @property
        def unsent(self) -> bool:
            """Whether the kernel has not taken all yet; `flush` goes on when `fileno` is writable."""
            ...

        def flush(self) -> None: ...

        def receive(self, timeout: float | None) -> list[Message]:
            """Waits for messages. None have come if the time is up or, with `ended` set, if the kernel is gone."""
            ...

        def interrupt(self, execution_id: str, *, harder: bool = False) -> None:
            """Interrupts an execution, an empty id whatever runs; `harder` by every means that keeps the process."""
            ...

        def interrupt_holder(self) -> bool:
            """Interrupts whatever holds the kernel, harder if it is not reached otherwise; returns whether it was."""
            ...

        def holder(self, execution_id: str) -> Holder:
            """Returns what holds the kernel, seen by an execution; also while the kernel itself cannot say so."""
            ...

        @property
        def awaits_rest(self) -> bool:
            """Whether part of a message has come."""
            ...

        @property
        def lacks_rest(self) -> bool:
            """Whether part of a message has come, and nothing since, for longer than a kernel takes to send it."""
            ...

        def still_serves(self) -> bool:
            """Tells whether the kernel lives and takes others when this one has ended; gives it a moment to end too."""
            ...

        def cause(self, farewell: str = "") -> str:
            """Returns why the kernel has ended; `farewell` is what it said before it left."""
            ...

        def leftovers(self, execution_id: str) -> list[Output]:
            """Returns what the kernel had written but not sent when it ended."""
            ...

        def close(self) -> None: ...

    class Engine(Protocol):
        """How a kind of kernel is launched, reached, watched and ended."""

        name: EngineName
        connection_file: str
        """The file in a kernel's directory that its record shows as `connection_file`."""
        uses_template: bool
        """Whether kernels are forked from a warm template, where the system allows it."""
        describes_itself: bool
        """Whether a kernel answers `kernel_info`; where not, all kernels are the same, and the host knows."""

        def check(self, kernel_type: str) -> None:
            """Raises InvalidInput for a kernel type that this engine cannot run."""
            ...

        def launch(self, launch: Launch) -> None:
            """Starts the process of a kernel, and names it in the record. Raises StartFailed or OSError."""
            ...

        def connect(self, record: KernelRecord, directory: KernelDirectory) -> Connection:
            """Returns a new connection; raises OSError if the kernel is gone."""
            ...

        def state(self, directory: KernelDirectory) -> KernelState | None:
            """Returns what a kernel says of itself."""
            ...

        def may_be_held(self, record: KernelRecord) -> bool:
            """Tells whether a thread that a cell has started may hold a kernel, though its state does not say so."""
            ...

        def is_alive(self, record: KernelRecord) -> bool:
            """Tells whether the process of a record lives."""
            ...

        def find_obstacle(self, directory: KernelDirectory) -> str:
            """Returns what keeps clients from a kernel, even if its process lives; "" if nothing does."""
            ...

        def wait(self, record: KernelRecord, timeout: float) -> bool:
            """Waits for the process of a record to end; returns whether it has."""
            ...

        def end(self, record: KernelRecord, directory: KernelDirectory, reason: str) -> None:
            """Ends the process of a record and all that it started; returns when nothing is left of them."""
            ...

        def cause(self, record: KernelRecord, directory: KernelDirectory, *, patience: float) -> str:
            """Returns why the process of a record has ended; waits for the note about it at most so long."""
            ...

        def claim_report(self, record: KernelRecord, directory: KernelDirectory) -> bool:
            """Notes that the caller tells of a death; False if it has been told already, or there is none to tell."""
            ...

        def was_reported(self, record: KernelRecord, directory: KernelDirectory) -> bool:
            """Tells whether the death of the process of a record has been told."""
            ...

        def tidy(self, runtime: Place, secret: bytes) -> None:
            """Ends what the engine keeps beside its kernels, and removes what that leaves; `secret` signs its locks."""
            ...


@dataclass(frozen=True, slots=True)
class Launch:
    """What an engine needs to start the process of a kernel.

    `opening` is the read end of a pipe: if its other end is closed before the start is said there to have come to an
    end, the process is ended. `lifeline` shows the end of its owner, -1 for none. `disk_before` is what the working
    directory holds, in bytes, if a limit depends on it.
    """

    record: KernelRecord
    directory: KernelDirectory
    environment: dict[str, str]
    config: KernelBoxConfig
    opening: int
    lifeline: int
    disk_before: int = 0
