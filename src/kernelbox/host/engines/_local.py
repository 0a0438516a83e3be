"""What the engines of this machine share: a kernel is a process here, known by its pid, its start time and the boot."""

from __future__ import annotations

import signal
import sys
from abc import ABC, abstractmethod

from kernelbox.base._errors import StoreFailed
from kernelbox.host.process._process import Process, boot_id, exists
from kernelbox.host.store import _death_notes as _notes
from kernelbox.host.store._death_notes import CAUSE_PATIENCE
from kernelbox.host.store._record import UNUSABLE, is_rewritten
from kernelbox.host.store._state_file import read_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.host.engines._interface import Connection
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._execution import Holder
    from kernelbox.wire._kernel_state import KernelState
    from kernelbox.wire._messages import Output, Spawned

# A kernel asked to end runs its exit functions in this time; then it is killed.
TERMINATE_PATIENCE = 0.5
_KILL_PATIENCE = 5.0


# A process that has closed its sockets because it ends has ended within this; one that has not lives.
END_PATIENCE = 1.0

# Why a process is ended that lives and takes no connections.
_CLOSED = "it takes no connections any more: it became another program, or closed its socket"


class LocalConnection:
    """The part of a connection that knows the process behind it."""

    def __init__(self, directory: KernelDirectory, process: Process) -> None:
        self.directory = directory
        self.process = process

    def death_fileno(self) -> int:
        return self.process.fileno()

    def holder(self, execution_id: str) -> Holder:
        state = read_state(self.directory)
        if state is None:
            return "other"  # it cannot be known
        if state.activity != "busy":
            return "none"
        if state.running == execution_id:
            return "this"
        return "abandoned" if state.client and not exists(state.client) else "other"

    @property
    def awaits_rest(self) -> bool:
        return False  # where messages come whole

    @property
    def lacks_rest(self) -> bool:
        return False

    def still_serves(self) -> bool:
        return False

    def cause(self, farewell: str = "") -> str:
        return _notes.find_cause(self.directory, self.process, farewell)

    def leftovers(self, execution_id: str) -> list[Output]:
        return _notes.read_leftovers(self.directory, self.process, execution_id)


class LocalEngine(ABC):
    """The part of an engine that deals with the process."""

    def state(self, directory: KernelDirectory) -> KernelState | None:
        return read_state(directory)

    def may_be_held(self, record: KernelRecord) -> bool:
        return False

    def connect(self, record: KernelRecord, directory: KernelDirectory) -> Connection:
        process = process_of(record)
        if process is None:
            raise ConnectionRefusedError("the machine has been restarted")
        connection = self._connect(record, directory, process)
        if process.fileno() < 0 and not process.alive:  # what took the call is a process that has followed it
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
        except OSError as exc:  # we have too much open, or the disk fails: nothing is known of the kernel
            raise StoreFailed.because(exc, directory.path, "read") from exc

    def wait(self, record: KernelRecord, timeout: float) -> bool:
        process = process_of(record)
        return process is None or process.wait(timeout)

    def cause(self, record: KernelRecord, directory: KernelDirectory, *, patience: float = CAUSE_PATIENCE) -> str:
        process = process_of(record)
        if process is None:
            return "the machine was restarted since"
        return _notes.find_cause(directory, process, patience=patience)

    def end(self, record: KernelRecord, directory: KernelDirectory, reason: str) -> None:
        """terminate → kill → wait for the keeper to have cleaned up after it."""
        process = process_of(record)
        if process is None:
            return
        if not process.alive:
            _notes.wait_for_note(directory, process)  # its keeper may still clean up; the pid is not ours to touch
            process.close()
            return
        family = process.descendants()
        first = process.first_of_namespace() if record.sandbox is not None else None
        _notes.write_reason(directory, process, reason)
        self._ask_to_end(directory, process)
        if process.signal(signal.SIGTERM) and not process.wait(TERMINATE_PATIENCE):
            process.signal(signal.SIGKILL)
            process.wait(_KILL_PATIENCE)
        note = _notes.wait_for_note(directory, process)
        for relative in family:  # its keeper has ended them, if it is not gone, and the note no cell's
            relative.signal(signal.SIGKILL)
        if note is None:
            process.kill_session()
        if first is not None:  # it ends when all that is in the sandbox has
            first.signal(signal.SIGKILL)
            first.wait(_KILL_PATIENCE)
            first.close()
        process.close()

    def claim_report(self, record: KernelRecord, directory: KernelDirectory) -> bool:
        process = _ended_process(record)
        return process is not None and _notes.claim_report(directory, process)

    def was_reported(self, record: KernelRecord, directory: KernelDirectory) -> bool:
        process = _ended_process(record)
        return process is None or _notes.was_reported(directory, process)

    def tidy(self, runtime: Place, secret: bytes) -> None:  # noqa: B027  # not every engine has something to tidy
        """Does nothing, where nothing is kept beside the kernels."""

    @abstractmethod
    def _connect(self, record: KernelRecord, directory: KernelDirectory, process: Process) -> Connection:
        """Returns a connection to whatever process serves the kernel now."""

    @abstractmethod
    def _entrances(self, directory: KernelDirectory) -> Sequence[str]:
        """Returns the files in a kernel's directory that a client needs."""

    def _ask_to_end(self, directory: KernelDirectory, process: Process) -> None:  # noqa: B027  # SIGTERM is enough for one
        """Asks a kernel to end by other means than SIGTERM; ours knows none."""


def end_closed(directory: KernelDirectory, process: Process) -> None:
    """Ends a process that lives and refuses connections; its keeper's note then has what it wrote last.

    Where the system also refuses connections for which there is no room at the moment, nothing is known, and it stays.
    """
    if sys.platform != "linux":
        return
    _notes.write_reason(directory, process, _CLOSED)
    process.signal(signal.SIGKILL)
    process.wait(_KILL_PATIENCE)
    _notes.wait_for_note(directory, process)


def identify(record: KernelRecord, spawned: Spawned) -> None:
    """Names the process of a record, by all that tells it from every other."""
    record.pid, record.start_time, record.boot_id = spawned.pid, spawned.start_time, boot_id()


def _ended_process(record: KernelRecord) -> Process | None:
    """Returns what the note about a death names: no process if none was started, number 0 if it is not known which."""
    if record.pid is None:
        return Process(0, 0) if is_rewritten(record) else None
    return Process(record.pid, record.start_time)


def process_of(record: KernelRecord) -> Process | None:
    """Returns the process of a record, None if it cannot be alive because the machine was restarted since."""
    return None if record.process is None else record.process.find()
