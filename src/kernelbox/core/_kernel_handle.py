"""The handle to one kernel, and the pool of connections that wait for the next execution."""

from __future__ import annotations

import os
import time

from kernelbox.base._errors import EXHAUSTED, KernelBusy, KernelDied, StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.base._unique_objects import Handle
from kernelbox.host._engines import engine_named
from kernelbox.host.store._death_notes import ROLLED_BACK
from kernelbox.wire._messages import Query, Reply
from kernelbox.wire._results import ErrorInfo, ExecutionResult, SetBack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kernelbox.core._kernels import Kernels
    from kernelbox.core.cells._history import PastCell
    from kernelbox.host.engines._interface import Connection
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._kernel_state import KernelState
    from kernelbox.wire._messages import Output

# Looking at every connection of the pool costs a few microseconds each: not after every cell.
_SWEEP_EVERY = 100

# A kernel between cells answers a query in a millisecond; one that takes longer is stopped or stuck.
_ANSWER_PATIENCE = 2.0


class KernelHandle(Handle):
    """One kernel, as shells and faces use it. `environment` is for a new process of it, None for the caller's own.

    `describe` explains why no new process could start, for the result of a cell that had to be killed. While the kernel
    is `starting`, its opener holds the lock of its name, and a process that must be killed is not replaced.
    """

    def __init__(
        self,
        kernels: Kernels,
        record: KernelRecord,
        *,
        environment: dict[str, str] | None = None,
        describe: Callable[[Exception], str] = str,
        starting: bool = False,
    ) -> None:
        self.record = record
        self.environment = environment
        self.config = kernels.config
        self.openings = kernels.openings
        self._kernels = kernels
        self._describe = describe
        self._starting = starting

    def __repr__(self) -> str:
        return f"<KernelHandle {self.record.name!r} {self.record.status} pid={self.record.pid}>"

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def directory(self) -> KernelDirectory:
        return self._kernels.store.directory(self.record.kernel_id)

    @property
    def is_connected(self) -> bool:
        """Whether a connection in the pool shows that the kernel lives, without a look at the file system."""
        return self._kernels.pool.has(self.record)

    @property
    def is_dead(self) -> bool:
        """Whether the kernel was dead when it was last looked at, and no connection shows otherwise."""
        return self.record.status == "dead" and not self.is_connected

    def take_pooled(self) -> Connection | None:
        """Returns a connection from the pool, or None; `release` gives it back.

        A connection also shows that the kernel lives, without a look at the file system.
        """
        return self._kernels.pool.take(self.record)

    def connect(self) -> Connection:
        """Returns a connection for one execution at a time; `release` gives it back.

        Waits for a kernel that is being restarted. Raises StoreFailed if this process cannot open what it needs, and
        any other OSError if the kernel is gone.
        """
        if (pooled := self.take_pooled()) is not None:
            return pooled
        engine = engine_named(self.record.engine)
        try:
            return engine.connect(self.record, self.directory)
        except StoreFailed:
            raise
        except OSError as exc:
            if self._starting:
                raise  # nobody restarts it: we hold the lock
            if exc.errno in EXHAUSTED:
                raise StoreFailed.because(exc, self.directory.path, "reach") from exc
            current = self._kernels.follow(self.record)
            if not current.alive or current.process == self.record.process:
                raise
            self.record = current
            return engine.connect(current, self.directory)

    def release(self, connection: Connection) -> None:
        """Takes a connection back, for the next execution."""
        if connection.ended:
            connection.close()
        else:
            self._kernels.pool.give(self.record, connection)

    def ask(
        self, what: str, args: dict[str, object], *, patience: float = _ANSWER_PATIENCE
    ) -> dict[str, object] | None:
        """Sends a query to a kernel that is between cells; None if it does not answer in time, or has ended."""
        reply = self._exchange(Query(os.urandom(8).hex(), what, args), patience)
        return None if reply is None else reply.content

    def exchange(
        self, what: str, args: dict[str, Any], payload: bytes = b"", *, patience: float
    ) -> tuple[dict[str, Any], bytes]:
        """Like `query`, with raw bytes both ways."""
        if not self.record.alive:
            raise self.died(self.cause())
        reply = self._exchange(Query(os.urandom(8).hex(), what, args, payload), patience)
        if reply is None:
            raise KernelBusy(self.name)
        return reply.content, reply.payload

    def _exchange(self, query: Query, patience: float) -> Reply | None:
        """Sends a query and waits for its reply.

        If the connection ends while the kernel lives, a cell's leftovers closed it, and the query is sent again.
        """
        deadline = time.monotonic() + patience
        while True:
            try:
                connection = self.connect()
            except OSError:
                return None
            try:
                connection.send(query)
                while not connection.ended and (left := deadline - time.monotonic()) > 0:
                    for message in connection.receive(left):
                        if isinstance(message, Reply) and message.id == query.id:
                            self.release(connection)
                            return message
            except BaseException:
                connection.close()
                raise
            again = connection.ended and time.monotonic() < deadline and connection.still_serves()
            connection.close()
            if not again:
                return None

    def query(self, what: str, args: dict[str, object], *, patience: float) -> dict[str, Any]:
        """Like `ask`; raises KernelBusy if the kernel does not answer in time, and KernelDied if it has ended."""
        return self.exchange(what, args, patience=patience)[0]

    def answers(self) -> bool:
        """Asks a kernel between cells for a sign of life; one that runs a cell counts as alive."""
        return self.record.status == "running" or self.ask("is_complete", {"code": ""}) is not None

    def state(self) -> KernelState | None:
        """Returns what the kernel says about itself in its state file, also while it is busy."""
        return engine_named(self.record.engine).state(self.directory)

    def history(self, last: int = 0) -> list[PastCell]:
        """Returns the cells that ran under the kernel's name, or the last of them; the kernel may be dead."""
        from kernelbox.core.cells._history import read_cells

        limit = self._kernels.config.output_char_limit
        return [cell.describe(limit) for cell in read_cells(self).cells[-last:]]

    def read_output(self, execution_id: str) -> str:
        """Returns the whole text of an execution from the log; raises OutputNotKept."""
        from kernelbox.core.cells._history import read_output

        return read_output(self, execution_id)

    def notebook(self) -> dict[str, Any]:
        """Returns the history as a notebook; raises KernelBoxError for a kernel whose outputs are not kept."""
        from kernelbox.core.cells._notebook_export import export_notebook

        return export_notebook(self)

    def interrupt(self) -> bool:
        """Interrupts what the kernel is busy with; returns whether that was reached."""
        try:
            connection = self.connect()
        except OSError:
            return False  # it has ended since
        reached = connection.interrupt_holder()
        if reached:
            self.release(connection)
        else:
            connection.close()  # the answer may still arrive on it
        return reached

    def leftovers(self, execution_id: str) -> list[Output]:
        """Returns what an execution had written but not sent when the kernel died."""
        return engine_named(self.record.engine).leftovers(self.record, self.directory, execution_id)

    def cause(self) -> str:
        """Returns why a kernel that cannot be reached has ended."""
        return self.record.death or self._kernels.condition.cause(self.record)

    @property
    def has_checkpoints(self) -> bool:
        """Whether the kernel, if it is dead, can be set back to a checkpoint."""
        from kernelbox.host.store._checkpoint_files import has_checkpoints, read_checkpoints

        return has_checkpoints(self.directory) and bool(read_checkpoints(self.directory))

    def note_death(self) -> None:
        """Notes that the death has been reported: the next use of the name opens a fresh kernel."""
        self._kernels.condition.claim_report(self.record)

    def report_death(self, result: ExecutionResult, advice: str) -> None:
        """Notes that a result reports the kernel's death; adds the advice unless the kernel is back."""
        self.note_death()
        if result.error is not None and not self._is_replaced():
            result.error.evalue += f"; {advice}"

    def _is_replaced(self) -> bool:
        """Tells whether another process has replaced the one that we know, or is about to."""
        current = self._kernels.store.get(self.record.kernel_id)
        if current is None or (current.status != "unknown" and current.process == self.record.process):
            return False
        return self._kernels.condition.refresh(current, patience=0.0).status != "dead"

    def end(self, reason: str) -> None:
        """Ends the process and what it started."""
        self._kernels.end_process(self.record, reason)

    def come_back(self, cause: str = "") -> SetBack | None:
        """Sets a kernel that has ended back to its last checkpoint, unless a client has done so; None if it has none.

        `cause` is why its process has ended: a client may have asked for it.
        """
        from kernelbox.host.store._checkpoint_files import has_checkpoints

        if self._starting or not has_checkpoints(self.directory):
            return None
        from kernelbox.core._time_travel import restore  # few kernels have checkpoints

        restored = restore(self._kernels, self.record, cause)
        if restored is None:
            return None
        asked = cause.removeprefix(ROLLED_BACK) if cause.startswith(ROLLED_BACK) else ""
        number = int(asked) if asked.isdecimal() else restored.restored_from
        if number is None:
            return None
        # It may have been set back again since, and what was lost the first time is not known then.
        lost = restored.lost_executions if number == restored.restored_from else []
        return SetBack(number, lost, asked_for=bool(asked))

    def dead_result(self, advice: str) -> ExecutionResult:
        """Returns the result of a cell that was sent to a dead kernel, and notes that this reports the death."""
        self.note_death()
        record, set_back = self.record, self.come_back()
        if set_back is None:
            value = f"kernel {record.name!r} is dead: {record.death}; its variables are lost; {advice}"
        else:
            value = f"kernel {record.name!r} had died: {record.death}; {set_back}; the cell never ran: run it again"
        result = ExecutionResult(
            "error",
            error=ErrorInfo("KernelDied", value, [f"KernelDied: {value}"]),
            text=f"KernelDied: {value}",
            state="lost",
            ending="never ran",
            kernel_id=record.kernel_id,
            name=record.name,
        )
        if set_back is not None:
            set_back.note_in(result)
        return result

    def died(self, cause: str, advice: str = "") -> KernelDied:
        """Returns the error for a death that no result reports. The advice is for a kernel without checkpoints."""
        if self.has_checkpoints:
            advice = "the next call by its name continues from a checkpoint"
        return KernelDied(self.name, cause, advice)

    def replace_process(self, reason: str) -> tuple[str, SetBack | None]:
        """Kills the process. Another is started, or the kernel set back to its last checkpoint.

        Returns "", or why there is no other process, and what the kernel was set back to.
        """
        if self._starting:
            self.end(reason)
            return "it was being started", None
        try:
            if (set_back := self.come_back(reason)) is not None:
                return "", set_back
            # It is killed under the lock of its name; otherwise a client that saw it dead would open another kernel.
            self._kernels.restart(self.record.kernel_id, reason=reason, environment=self.environment, ended=self.record)
        except Exception as exc:  # noqa: BLE001  # the execution is over, for whatever reason no other process started
            with suppress(OSError):
                self.end(reason)  # by our own record: the one in the store may have been lost, or forged
            return self._describe(exc) or type(exc).__name__, None
        return "", None


def next_by_name(name: str) -> str:
    """Returns what a caller that uses the name can do about a death."""
    return f"the next call by the name {name!r} starts a fresh one"


class ConnectionPool(Handle):
    """Idle connections by kernel, and the records of the names that were used for them.

    A cell in a kernel that was used before reads no file: the connection shows that the kernel lives, and a kernel
    keeps its names as long as it lives. Threads share the lists by `append` and `pop`, which are atomic.
    """

    def __init__(self, runtime_dir: str) -> None:
        self._runtime_dir = runtime_dir
        # Each with the pid and the start time of its process: a ProcessIdentity would cost each cell two calls.
        self._idle: dict[str, list[tuple[tuple[int | None, int], Connection]]] = {}
        self._named: dict[str, tuple[KernelRecord, tuple[int, int]]] = {}
        self._given = 0

    def __repr__(self) -> str:
        return f"<ConnectionPool of {sum(map(len, self._idle.values()))} connections>"

    def take(self, record: KernelRecord) -> Connection | None:
        """Returns a connection to the process that the record names, None if none is kept."""
        kept = self._idle.get(record.kernel_id)
        others, found = [], None
        while kept and found is None:
            try:
                process, connection = kept.pop()
            except IndexError:
                break  # another thread took the last
            if not connection.idle:
                connection.close()
            elif process == (record.pid, record.start_time):
                found = connection
            else:
                others.append((process, connection))  # the record may be from before a restart
        if kept is not None:
            kept.extend(others)
        return found

    def take_named(self, name: str) -> tuple[KernelRecord, Connection] | None:
        """Returns the kernel that a name or an id was last used for, with a connection.

        None if no connection is kept, or if the runtime directory has been replaced; the name is then looked up again.
        """
        record, place = self._named.get(name, (None, None))
        if record is None or place != self._place() or (connection := self.take(record)) is None:
            return None
        return record, connection

    def remember(self, name: str, record: KernelRecord) -> None:
        """Keeps the record of a name or an id as long as connections to its kernel are kept."""
        if (place := self._place()) is not None:
            self._named[name] = record, place

    def _place(self) -> tuple[int, int] | None:
        """Returns the device and inode of the runtime directory, which change if it is replaced."""
        try:
            found = os.stat(self._runtime_dir)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def give(self, record: KernelRecord, connection: Connection) -> None:
        """Keeps a connection for the next execution."""
        self._idle.setdefault(record.kernel_id, []).append(((record.pid, record.start_time), connection))
        self._given += 1
        if self._given % _SWEEP_EVERY == 0:
            self._sweep()

    def _sweep(self) -> None:
        """Closes connections to kernels that other processes have ended: nobody asks for them again."""
        for kernel_id, kept in list(self._idle.items()):
            for item in [item for item in kept if not item[1].idle]:
                with suppress(ValueError):  # another thread has just taken it
                    kept.remove(item)
                    item[1].close()
            if not kept:
                self._idle.pop(kernel_id, None)
        for name, (record, _) in list(self._named.items()):
            if record.kernel_id not in self._idle:
                self._named.pop(name, None)

    def has(self, record: KernelRecord) -> bool:
        """Tells whether a connection shows that the kernel lives."""
        process = (record.pid, record.start_time)
        return any(each == process and connection.idle for each, connection in self._idle.get(record.kernel_id, ()))

    def drop(self, record: KernelRecord) -> None:
        """Closes the connections to a kernel."""
        for _, connection in self._idle.pop(record.kernel_id, ()):
            connection.close()
