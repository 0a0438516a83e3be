"""What an engine is given, and the connections that it returns; `_local.py` has the engine itself."""

from __future__ import annotations

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, Self

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.base._interpreter import Interpreter
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._messages import Message, Output, Spawned
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

        def leftovers(self, execution_id: str) -> list[Output] | None:
            """Returns what an execution had written but not sent when the kernel ended; None if it did not run then."""

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
    apart: bool = False
    """Whether its template runs from a copy of the loader: its forks then cannot reach the interpreter's file by
    /proc/self/exe."""


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
