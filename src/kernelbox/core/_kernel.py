"""The handle to one kernel, and the pool of connections that wait for the next execution."""

from __future__ import annotations

import contextlib
import os
import time

from kernelbox.base._errors import EXHAUSTED, StoreFailed
from kernelbox.host._engines import engine_named
from kernelbox.wire._messages import Query, Reply
from kernelbox.wire._results import ErrorInfo, ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.core._kernels import Kernels
    from kernelbox.host.engines._interface import Connection
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord

# Looking at every connection of the pool costs a few microseconds each: not after every cell.
_SWEEP_EVERY = 100

# A kernel between cells answers a question in a millisecond; one that takes longer is stopped or stuck.
_ANSWER_PATIENCE = 2.0


class Kernel:
    """One kernel, as shells and faces use it. `environment` is what a new process of it gets, None the caller's own.

    `describe` puts in words why there could be no new process, for the result of a cell that had to be killed. While
    the kernel is `starting` its opener holds the lock of its name, and a process that must be killed is not replaced.
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
        self._kernels = kernels
        self._describe = describe
        self._starting = starting

    def __repr__(self) -> str:
        return f"<Kernel {self.record.name!r} {self.record.status} pid={self.record.pid}>"

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
        """Returns a connection that waits in the pool, None if there is none; `release` gives it back.

        It also shows that the kernel lives, without a look at the file system.
        """
        return self._kernels.pool.take(self.record)

    def connect(self) -> Connection:
        """Returns a connection for one execution at a time; `release` gives it back.

        A kernel that is being restarted is waited for. Raises StoreFailed if this process cannot open what it needs,
        and any other OSError if the kernel is gone.
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
                raise  # we hold the lock that a restart would
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
        """Puts a question to a kernel that is between cells; None if it does not answer in time, or has ended.

        A connection that ends while the kernel lives was closed by what a cell has left behind: it is asked again.
        """
        query = Query(os.urandom(8).hex(), what, args)
        deadline = time.monotonic() + patience
        while True:
            try:
                connection = self.connect()
            except OSError:
                return None
            connection.send(query)
            while not connection.ended and (left := deadline - time.monotonic()) > 0:
                for message in connection.receive(left):
                    if isinstance(message, Reply) and message.id == query.id:
                        self.release(connection)
                        return message.content
            again = connection.ended and time.monotonic() < deadline and connection.still_serves()
            connection.close()
            if not again:
                return None

    def answers(self) -> bool:
        """Asks a kernel that is between cells for a sign of life; one that runs a cell is taken at its word."""
        return self.record.status == "running" or self.ask("is_complete", {"code": ""}) is not None

    def interrupt(self) -> bool:
        """Interrupts what holds the kernel; returns whether that was reached."""
        try:
            connection = self.connect()
        except OSError:
            return False  # it has ended since
        reached = connection.interrupt_holder()
        if reached:
            self.release(connection)
        else:
            connection.close()  # what answers it may still come
        return reached

    def cause(self) -> str:
        """Returns why the kernel that could not be reached has ended."""
        return self.record.death or self._kernels.condition.cause(self.record)

    def note_death(self) -> None:
        """Notes that the death has been reported: the next use of the name opens a fresh kernel."""
        self._kernels.condition.claim_report(self.record)

    def report_death(self, result: ExecutionResult, advice: str) -> None:
        """Notes that a result reports the kernel's death; adds the advice unless the kernel is back."""
        self.note_death()
        if result.error is not None and not self._is_replaced():
            result.error.evalue += f"; {advice}"

    def _is_replaced(self) -> bool:
        """Tells whether another process has taken the place of the one that we know, or is about to."""
        current = self._kernels.store.get(self.record.kernel_id)
        if current is None or (current.status != "unknown" and current.process == self.record.process):
            return False
        return self._kernels.condition.refresh(current, patience=0.0).status != "dead"

    def end(self, reason: str) -> None:
        """Ends the process and what it started."""
        self._kernels.end_process(self.record, reason)

    def replace_process(self, reason: str) -> str:
        """Kills the process and starts another; returns "", or why there is none."""
        if self._starting:
            self.end(reason)
            return "it was being started"
        try:
            # It is killed under the lock of its name: a client that saw it dead would open a kernel in its place.
            self._kernels.restart(self.record.kernel_id, reason=reason, environment=self.environment, ended=self.record)
        except Exception as exc:  # noqa: BLE001  # no other can start for any reason: the execution is over
            with contextlib.suppress(OSError):
                self.end(reason)  # by the record that we hold: the one in the store may have been lost, or forged
            return self._describe(exc) or type(exc).__name__
        return ""


def dead_result(record: KernelRecord, advice: str) -> ExecutionResult:
    """Returns the result of a cell that was sent to a dead kernel."""
    value = f"kernel {record.name!r} is dead: {record.death}; its variables are lost; {advice}"
    error = ErrorInfo("KernelDied", value, [f"KernelDied: {value}"])
    return ExecutionResult("error", error=error, text=error.traceback[0], state="lost", ending="never ran")


class Pool:
    """Idle connections, by kernel, and the records of the names they were used by.

    A cell on a kernel that was used before reads no file: the connection shows that the kernel lives, and a kernel
    keeps its names as long as it lives. A list's `append` and `pop` are what threads share it by.
    """

    def __init__(self, runtime_dir: str) -> None:
        self._runtime_dir = runtime_dir
        # With the pid and the start time of each one's process: building identities would cost each cell two calls.
        self._idle: dict[str, list[tuple[tuple[int | None, int], Connection]]] = {}
        self._named: dict[str, tuple[KernelRecord, tuple[int, int]]] = {}
        self._given = 0

    def __repr__(self) -> str:
        return f"<Pool of {sum(map(len, self._idle.values()))} connections>"

    def take(self, record: KernelRecord) -> Connection | None:
        """Returns a connection to the process that the record names, None if none is kept."""
        kept = self._idle.get(record.kernel_id)
        while kept:
            try:
                process, connection = kept.pop()
            except IndexError:
                break  # another thread took the last
            if process == (record.pid, record.start_time) and connection.idle:
                return connection
            connection.close()
        return None

    def take_named(self, name: str) -> tuple[KernelRecord, Connection] | None:
        """Returns the kernel that a name was last used for, with a connection.

        None if no connection is kept, or the runtime directory is not where it was: then the name is looked for anew.
        """
        record, place = self._named.get(name, (None, None))
        if record is None or place != self._place() or (connection := self.take(record)) is None:
            return None
        return record, connection

    def remember(self, name: str, record: KernelRecord) -> None:
        """Keeps the record that a name leads to, for as long as connections to its kernel are kept."""
        if (place := self._place()) is not None:
            self._named[name] = record, place

    def _place(self) -> tuple[int, int] | None:
        """Returns what tells the runtime directory from another at its path."""
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
        """Closes connections to kernels that others have ended, which are never asked for again."""
        for kernel_id, kept in list(self._idle.items()):
            for item in [item for item in kept if not item[1].idle]:
                with contextlib.suppress(ValueError):  # another thread has just taken it
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
