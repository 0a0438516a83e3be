"""What both engines share, because their kernels are processes of this machine."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod

from kernelbox.base._errors import StoreFailed
from kernelbox.base._light_stdlib import signal
from kernelbox.base._unique_objects import Owner
from kernelbox.host.process._process import Process, boot_id, exists
from kernelbox.host.store import _death_notes as _notes
from kernelbox.host.store._death_notes import CAUSE_PATIENCE
from kernelbox.host.store._record import UNUSABLE, is_rewritten
from kernelbox.host.store._state_file import read_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.host.engines._interface import Connection
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._kernel_state import KernelState
    from kernelbox.wire._messages import Output, Spawned
    from kernelbox.wire._timeout_ladder import Holder

# A kernel that is asked to end has this long for its exit functions; then it is killed.
TERMINATE_PATIENCE = 0.5

# After SIGKILL only the operating system is waited for.
KILL_PATIENCE = 5.0

# A process that closes its sockets because it ends has ended within this time.
END_PATIENCE = 1.0

# Why a process that refuses connections is ended.
_CLOSED = "it no longer accepts connections: it became another program, or closed its socket"


class LocalConnection(Owner):
    """The part of a connection that deals with the process."""

    def __init__(self, directory: KernelDirectory, process: Process) -> None:
        self.directory = directory
        self.process = process

    def death_fileno(self) -> int:
        return self.process.fileno()

    def holder(self, execution_id: str) -> Holder:
        state = read_state(self.directory)
        if state is None:
            return "other"  # unknown
        if state.activity != "busy":
            return "none"
        if state.running == execution_id:
            return "this"
        return "abandoned" if state.client and not exists(state.client) else "other"

    def cause(self, farewell: str = "") -> str:
        return _notes.find_cause(self.directory, self.process, farewell)

    def leftovers(self, execution_id: str) -> list[Output]:
        return _notes.read_leftovers(self.directory, self.process, execution_id)


class LocalEngine(ABC):
    """The part of an engine that deals with the process."""

    def state(self, directory: KernelDirectory) -> KernelState | None:
        return read_state(directory)

    def connect(self, record: KernelRecord, directory: KernelDirectory) -> Connection:
        process = process_of(record)
        if process is None:
            raise ConnectionRefusedError("the machine has been restarted")
        connection = self._connect(record, directory, process)
        if process.fileno() < 0 and not process.alive:  # a later process has accepted the connection
            connection.close()
            raise ConnectionRefusedError("the process has ended")
        return connection

    def is_alive(self, record: KernelRecord) -> bool:
        process = process_of(record)
        return process is not None and process.alive

    def find_obstacle(self, directory: KernelDirectory) -> str:
        try:
            with directory.open() as place:
                missing = [name for name in self._entrances(directory) if not place.exists(name)]
            return f"its file {missing[0]!r} was deleted" if missing else ""
        except FileNotFoundError:
            return "its directory was deleted"
        except (StoreFailed, PermissionError, NotADirectoryError) as exc:
            return f"{UNUSABLE}{exc}"
        except OSError as exc:  # too many open files, or a failing disk: nothing is known about the kernel
            raise StoreFailed.because(exc, directory.path, "read") from exc

    def wait(self, record: KernelRecord, timeout: float) -> bool:
        process = process_of(record)
        return process is None or process.wait(timeout)

    def cause(self, record: KernelRecord, directory: KernelDirectory, *, patience: float = CAUSE_PATIENCE) -> str:
        process = process_of(record)
        if process is None:
            return "the machine was restarted since"
        return _notes.find_cause(directory, process, patience=patience)

    def leftovers(self, record: KernelRecord, directory: KernelDirectory, execution_id: str) -> list[Output]:
        process = process_of(record)
        return [] if process is None else _notes.read_leftovers(directory, process, execution_id)

    def end(self, record: KernelRecord, directory: KernelDirectory, reason: str) -> None:
        """terminate → kill → wait until the keeper has cleaned up."""
        process = process_of(record)
        if process is None:
            return
        if not process.alive:
            _notes.wait_for_note(directory, process)  # its keeper may still be cleaning up
            process.close()
            return
        family = process.descendants()
        first = process.first_of_namespace() if record.sandbox is not None else None
        _notes.write_reason(directory, process, reason)
        self._ask_to_end(directory, process)
        if process.signal(signal.SIGTERM) and not process.wait(TERMINATE_PATIENCE):
            process.signal(signal.SIGKILL)
            process.wait(KILL_PATIENCE)
        note = _notes.wait_for_note(directory, process)
        for relative in family:  # the keeper has killed them, unless it is gone, or a cell has forged its note
            relative.signal(signal.SIGKILL)
        if note is None:
            process.kill_session()
        if first is not None:  # it ends after everything else in the sandbox
            first.signal(signal.SIGKILL)
            first.wait(KILL_PATIENCE)
            first.close()
        process.close()

    def claim_report(self, record: KernelRecord, directory: KernelDirectory) -> bool:
        process = _ended_process(record)
        return process is not None and _notes.claim_report(directory, process)

    def was_reported(self, record: KernelRecord, directory: KernelDirectory) -> bool:
        process = _ended_process(record)
        return process is None or _notes.was_reported(directory, process)

    @abstractmethod
    def _connect(self, record: KernelRecord, directory: KernelDirectory, process: Process) -> Connection:
        """Returns a connection to the process that serves the kernel now."""

    @abstractmethod
    def _entrances(self, directory: KernelDirectory) -> Sequence[str]:
        """Returns the files in a kernel's directory that clients need."""

    def _ask_to_end(self, directory: KernelDirectory, process: Process) -> None:  # noqa: B027  # optional
        """Asks a kernel to end before SIGTERM is sent; does nothing by default."""


def end_closed(directory: KernelDirectory, process: Process) -> None:
    """Ends a live process that refuses connections, and waits for its keeper's note.

    Other systems than Linux also refuse a connection when the queue is full, so there the process is kept.
    """
    if sys.platform != "linux":
        return
    _notes.write_reason(directory, process, _CLOSED)
    process.signal(signal.SIGKILL)
    process.wait(KILL_PATIENCE)
    _notes.wait_for_note(directory, process)


def identify(record: KernelRecord, spawned: Spawned) -> None:
    """Writes the identity of its process into a record."""
    record.pid, record.start_time, record.boot_id = spawned.pid, spawned.start_time, boot_id()


def _ended_process(record: KernelRecord) -> Process | None:
    """Returns the process that a note about a death is for: None if none was started, pid 0 if it is unknown."""
    if record.pid is None:
        return Process(0, 0) if is_rewritten(record) else None
    return Process(record.pid, record.start_time)


def process_of(record: KernelRecord) -> Process | None:
    """Returns the process of a record; None if the machine was restarted since."""
    return None if record.process is None else record.process.find()
