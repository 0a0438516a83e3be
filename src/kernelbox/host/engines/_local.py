"""An engine: how one kind of kernel, which is a process of this machine, is launched, reached, watched and ended."""

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

    from kernelbox.base._config import EngineName
    from kernelbox.host.engines._interface import Connection, CopyPlan, Fostering, Launch
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._checkpoint_files import Checkpoint
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._kernel_state import KernelState
    from kernelbox.wire._messages import Output, Release, Spawned
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

    def leftovers(self, execution_id: str) -> list[Output] | None:
        # Who knows the cause from another client's note has not waited for the keeper's.
        return _notes.read_leftovers(self.directory, self.process, execution_id, patience=_notes.CAUSE_PATIENCE)


class Engine(ABC):
    """How a kind of kernel is launched, reached, watched and ended. The core asks what it can do, not which it is."""

    name: EngineName
    connection_file: str
    """The file in a kernel's directory that its record shows as `connection_file`."""
    uses_template = False
    """Whether kernels are forked from a warm template, if the system allows it."""
    describes_itself = False
    """Whether a kernel answers `kernel_info`. If not, all kernels are the same, and the host knows the answer."""
    can_confine = False
    """Whether kernels can be sandboxed and guarded."""
    can_choose_python = False
    """Whether a kernel can run in an interpreter that its opener chooses."""
    logs_cells = False
    """Whether kernels log their cells with all outputs. If not, they only remember their inputs."""

    @abstractmethod
    def check(self, kernel_type: str) -> None:
        """Raises InvalidInput for a kernel type that this engine cannot run."""

    @abstractmethod
    def launch(self, launch: Launch) -> None:
        """Starts the process of a kernel, and writes it into the record. Raises StartFailed or OSError."""

    @abstractmethod
    def _connect(self, record: KernelRecord, directory: KernelDirectory, process: Process) -> Connection:
        """Returns a connection to the process that serves the kernel now."""

    @abstractmethod
    def _entrances(self, directory: KernelDirectory) -> Sequence[str]:
        """Returns the files in a kernel's directory that clients need."""

    def _ask_to_end(self, directory: KernelDirectory, process: Process) -> None:  # noqa: B027  # optional
        """Asks a kernel to end before SIGTERM is sent; does nothing by default."""

    def state(self, directory: KernelDirectory) -> KernelState | None:
        """Returns the state that a kernel reports."""
        return read_state(directory)

    def may_be_held(self, record: KernelRecord) -> bool:
        """Tells whether a thread of a cell may occupy a kernel, though its state does not say so."""
        return False

    def connect(self, record: KernelRecord, directory: KernelDirectory) -> Connection:
        """Returns a new connection; raises OSError if the kernel is gone."""
        process = process_of(record)
        if process is None:
            raise ConnectionRefusedError("the machine has been restarted")
        connection = self._connect(record, directory, process)
        if process.fileno() < 0 and not process.alive:  # a later process has accepted the connection
            connection.close()
            raise ConnectionRefusedError("the process has ended")
        return connection

    def is_alive(self, record: KernelRecord) -> bool:
        """Tells whether the process of a record is alive."""
        process = process_of(record)
        return process is not None and process.alive

    def find_obstacle(self, directory: KernelDirectory) -> str:
        """Returns why clients cannot reach a kernel, even if its process is alive; "" if they can."""
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
        """Waits for the process of a record to end; returns whether it has."""
        process = process_of(record)
        return process is None or process.wait(timeout)

    def cause(self, record: KernelRecord, directory: KernelDirectory, *, patience: float = CAUSE_PATIENCE) -> str:
        """Returns why the process of a record ended; waits at most `patience` for the note about it."""
        process = process_of(record)
        if process is None:
            return "the machine was restarted since"
        return _notes.find_cause(directory, process, patience=patience)

    def leftovers(self, record: KernelRecord, directory: KernelDirectory, execution_id: str) -> list[Output]:
        """Returns what an execution had written but not sent when the process of a record ended."""
        process = process_of(record)
        return (_notes.read_leftovers(directory, process, execution_id) if process is not None else None) or []

    def end(self, record: KernelRecord, directory: KernelDirectory, reason: str) -> None:
        """Ends the process of a record and everything it started: terminate → kill → wait for the keeper."""
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
        """Claims the report of a death for the caller; False if it was already reported, or there was none."""
        process = _ended_process(record)
        return process is not None and _notes.claim_report(directory, process)

    def was_reported(self, record: KernelRecord, directory: KernelDirectory) -> bool:
        """Tells whether the death of a record's process was already reported."""
        process = _ended_process(record)
        return process is None or _notes.was_reported(directory, process)

    # -- what only kernels of our own have -------------------------------------------------------------------

    @abstractmethod
    def find_refusals(self, record: KernelRecord, *, branch: bool) -> list[str]:
        """Returns why a kernel of this kind cannot be copied; empty if it can."""

    def foster(self, plan: CopyPlan) -> Fostering:
        """Prepares for a copy, which the kernel or the checkpoint then makes; raises CannotCopy."""
        raise AssertionError("find_refusals has said why not")

    def require_walls(self, record: KernelRecord, spawned: Spawned) -> None:  # noqa: B027  # there may be none
        """Ends a process that lacks walls of its record, according to the system, and raises StartFailed."""

    def release_checkpoints(self, directory: KernelDirectory, release: Release) -> None:  # noqa: B027  # as above
        """Ends checkpoints of a kernel; `why` in the release is a key of WHY_EVICTED."""

    def measure_checkpoints(self, directory: KernelDirectory, *, limit: int = 0) -> list[Checkpoint]:
        """Returns the checkpoints of a kernel, measured. Where they exceed a limit together, the oldest is gone."""
        return []

    def tidy(self, runtime: Place, secret: bytes) -> None:  # noqa: B027  # as above
        """Ends the engine's other processes, and removes their files; `secret` signs its locks."""


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
