"""Kernels: open, get, list, interrupt, restart, destroy. Everything that changes a kernel's life goes through here."""

from __future__ import annotations

import os
import time

from kernelbox.base._config import kernel_environment
from kernelbox.base._errors import KernelExists, KernelNotFound, StartFailed, StoreFailed
from kernelbox.core._arguments import (
    check_directory,
    check_environment,
    check_lifetime,
    check_name,
    check_names,
    check_tags,
)
from kernelbox.core._pool import Pool
from kernelbox.host import _death
from kernelbox.host._ending import TERMINATE_PATIENCE, end_process
from kernelbox.host._process import Process, boot_id, read_start_time
from kernelbox.host._record import KernelRecord, format_time, is_kernel_id
from kernelbox.host._store import RECORD, open_store
from kernelbox.host.own._connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.core._pool import AnyConnection
    from kernelbox.host._record import Lifetime
    from kernelbox.wire._results import ExecutionResult

# How many kernels are destroyed at a time: most of it is waiting for them to end.
_HANDS = 8

# A kernel between cells answers a question in a millisecond; one that takes longer is stopped or stuck.
_ANSWER_PATIENCE = 2.0


class Kernels:
    """The kernels of one configuration, shared with every other process that has the same."""

    def __init__(self, config: KernelBoxConfig, run: Callable[..., ExecutionResult]) -> None:
        """`run` drives a cell to its end: the start-up code's."""
        self.config = config
        self._run = run
        self.store = open_store(config)
        self._pool = Pool()
        # What kernels opened here were given that no record keeps: environments hold secrets.
        self._environments: dict[str, dict[str, str] | None] = {}

    def __repr__(self) -> str:
        return f"<Kernels in {self.store.runtime_dir}>"

    # -- finding ---------------------------------------------------------------------------------------------

    def find(self, key: str) -> KernelRecord | None:
        """Returns the record of an id, name or session name, as it is now."""
        record = (self.store.get(key) if is_kernel_id(key) else None) or self.store.find(key)
        return None if record is None else self.refresh(record)

    def get(self, key: str) -> KernelRecord:
        """Like `find`; raises KernelNotFound."""
        record = self.find(key)
        if record is None:
            raise KernelNotFound(key)
        return record

    def all(self) -> list[KernelRecord]:
        """Returns every kernel, oldest first, as it is now."""
        deadline = time.monotonic() + _death.NOTE_PATIENCE  # for all the dead together
        records = [self.refresh(record, patience=deadline - time.monotonic()) for record in self.store.all()]
        return [record for record in records if not self._bury_orphan(record)]

    def _bury_orphan(self, record: KernelRecord) -> bool:
        """Removes the record of a kernel that died with its owner: nobody is left who could be told."""
        if record.alive or record.owner_pid is None:
            return False
        if Process(record.owner_pid, record.owner_start_time).alive and record.boot_id == boot_id():
            return False
        return self._destroy(record, "its owner has ended")

    def refresh(self, record: KernelRecord, *, patience: float = _death.NOTE_PATIENCE) -> KernelRecord:
        """Fills in what a record says of the moment: status, last use, and how a dead kernel ended."""
        directory = self.store.directory(record.kernel_id)
        state = _death.read_state(directory)
        if state is not None:
            record.attempt_count = state.executions
            record.last_used_at = format_time(state.last_used) if state.last_used else record.last_used_at
            record.busy_since = format_time(state.busy_since) if state.busy_since else None
        if record.status == "unknown":  # as kept: its start has not come to an end
            if not self.store.is_changing(record.name):
                record.status, record.death = "dead", "its start was cut short"
            return record
        process = process_of(record)
        if process is None or not process.alive:
            record.status, record.busy_since, record.stale = "dead", None, False
            record.death = record.death or self._find_cause(record, process, patience)
            return record
        busy = state is not None and state.activity == "busy"
        record.status = "running" if busy else "idle"
        idle_for = time.time() - state.last_used if state is not None and state.last_used else 0.0
        record.stale = not busy and 0 < self.config.kernel_idle_timeout < idle_for
        return record

    def _find_cause(self, record: KernelRecord, process: Process | None, patience: float) -> str:
        if process is None:
            return "the machine was restarted since"
        return _death.find_cause(self.store.directory(record.kernel_id), process, patience=patience)

    def answers(self, record: KernelRecord) -> bool:
        """Asks a kernel that is between cells for a sign of life; one that runs a cell is taken at its word."""
        return record.status == "running" or self.ask(record, "is_complete", {"code": ""}) is not None

    def ask(
        self, record: KernelRecord, what: str, args: dict[str, object], *, patience: float = _ANSWER_PATIENCE
    ) -> dict[str, object] | None:
        """Puts a question to a kernel that is between cells; None if it does not answer in time, or has ended."""
        from kernelbox.wire._messages import Query, Reply

        query = Query(os.urandom(8).hex(), what, args)
        deadline = time.monotonic() + patience
        try:
            connection = self.connect(record)
        except OSError:
            return None
        connection.send(query)
        while not connection.ended and (left := deadline - time.monotonic()) > 0:
            for message in connection.receive(left):
                if isinstance(message, Reply) and message.id == query.id:
                    self.release(record, connection)
                    return message.content
        connection.close()
        return None

    # -- opening ---------------------------------------------------------------------------------------------

    def get_or_create(self, name: str, **options: object) -> KernelRecord:
        """Returns the live kernel of a name; opens one if there is none."""
        check_name(name)
        record = self.find(name)
        if record is not None and record.alive:
            return record
        with self.store.locking(*check_names(name, options)):
            record = self.find(name)
            if record is not None and record.alive:
                return record
            return self._replace(record, name, options)

    def create(self, name: str, **options: object) -> KernelRecord:
        """Opens a kernel under a name that no live kernel has; raises KernelExists."""
        check_name(name)
        with self.store.locking(*check_names(name, options)):
            record = self.find(name)
            if record is not None and record.alive:
                raise KernelExists(name)
            return self._replace(record, name, options)

    def use(self, name: str) -> KernelRecord:
        """Returns the kernel for a cell that is sent to a name: the live one, or a new one.

        A kernel that has died since it was last used is returned dead, once: its loss must be told before a new one
        takes its place.
        """
        check_name(name)
        record = self.find(name)
        if record is not None and record.alive:
            return record
        with self.store.locking(name):
            record = self.find(name)
            if record is not None and (record.alive or self.claim_report(record)):
                return record
            return self._replace(record, name, {})

    def claim_report(self, record: KernelRecord) -> bool:
        """Notes that the caller tells of a death; False if somebody has been told already, or there is none to tell."""
        if record.pid is None:
            return False
        return _death.claim_report(self.store.directory(record.kernel_id), Process(record.pid, record.start_time))

    def _replace(self, dead: KernelRecord | None, name: str, options: dict[str, object]) -> KernelRecord:
        """Opens a kernel under a name, in place of a dead one; the caller holds the name's lock."""
        session_name = options.get("session_name")
        if isinstance(session_name, str) and session_name != name:
            other = self.find(session_name)
            if other is not None and other.alive:
                raise KernelExists(session_name)
        lost = None
        if dead is not None:
            process = Process(dead.pid or 0, dead.start_time)
            if dead.pid and not _death.was_reported(self.store.directory(dead.kernel_id), process):
                lost = f"the kernel that had this name before: {dead.death}"
            self._discard(dead, "replaced")
        return self._open(name, lost=lost, **options)  # type: ignore[arg-type]  # checked by _open's signature

    def _open(
        self,
        name: str,
        *,
        session_name: str | None = None,
        tags: dict[str, str] | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        lifetime: Lifetime = "kernel",
        kernel_type: str | None = None,
        lost: str | None = None,
    ) -> KernelRecord:
        kernel_type = kernel_type or self.config.kernel_type
        engine = _engine_of(kernel_type, self.config.engine)
        kernel_id = os.urandom(16).hex()
        now = format_time(time.time())
        record = KernelRecord(
            kernel_id=kernel_id,
            connection_file=os.path.join(
                self.store.directory(kernel_id), RECORD if engine == "kernelbox" else "jupyter.json"
            ),
            name=name,
            session_name=check_name(session_name or name),
            created_at=now,
            last_used_at=now,
            status="unknown",
            tags=check_tags(tags or {}),
            kernel_type=kernel_type,
            engine=engine,
            cwd=check_directory(cwd),
            lifetime=check_lifetime(lifetime),
            lost=lost,
        )
        if lifetime == "process" or self.config.store_backend == "memory":
            record.owner_pid, record.owner_start_time = os.getpid(), read_start_time(os.getpid()) or 0
        self._environments[kernel_id] = check_environment(env)
        try:
            self.store.add(record)
            self._start(record)
        except BaseException:
            self._discard(record, "its start was cut short")
            raise
        return record

    def _start(self, record: KernelRecord) -> None:
        """Starts the process of a record and runs the start-up code.

        Until that has come to an end the record is kept as unknown, so that others wait for it, or, if we do not live
        to see it, take it for what it is.
        """
        record.status, record.death, record.busy_since = "unknown", None, None
        record.pid, record.start_time = self._launch(record)
        record.boot_id = boot_id()
        try:
            if self.config.startup_code:
                self.store.save(record)
                self._run_startup_code(record)
        finally:
            record.status = "idle"
            self.store.publish(record)

    def _launch(self, record: KernelRecord) -> tuple[int, int]:
        """Starts the process of a record; returns its pid and start time."""
        from kernelbox.host._lifeline import lifeline_to
        from kernelbox.host.own._launch import has_warm_template, launch, umask
        from kernelbox.wire._messages import Spawn

        env = self._environments.get(record.kernel_id)
        owned = record.owner_pid is not None
        spawn = Spawn(
            kernel_id=record.kernel_id,
            directory=self.store.directory(record.kernel_id),
            cwd=record.cwd,
            env=kernel_environment() if env is None else env,
            umask=umask(),
            lifeline=owned,
            idle_timeout=self.config.kernel_idle_timeout if self.config.cull_idle else 0.0,
        )
        line = lifeline_to(record.owner_pid, record.owner_start_time) if record.owner_pid is not None else -1
        if owned and line < 0:
            raise StartFailed(f"kernel {record.name!r} belongs to process {record.owner_pid}, which has ended")
        try:
            if record.engine == "jupyter":
                from kernelbox.host.jupyter._launch import launch_jupyter

                spawned = launch_jupyter(spawn, record.kernel_type, lifeline=line)
                return spawned.pid, spawned.start_time
            spawned = launch(
                spawn,
                template=self.store.runtime_dir if self.config.template and has_warm_template() else None,
                preload=self.config.preload,
                idle_timeout=self.config.template_idle_timeout,
                lifeline=line,
            )
        except StoreFailed:
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, spawn.directory) from exc
        finally:
            if line >= 0:
                os.close(line)
        return spawned.pid, spawned.start_time

    def _run_startup_code(self, record: KernelRecord) -> None:
        result = self._run(
            self, record, self.config.startup_code, store_history=False, timeout=self.config.execution_timeout
        )
        if not result.ok:
            assert result.error is not None
            self._end_process(record, "its start-up code failed")
            raise StartFailed(
                f"KERNELBOX_STARTUP_CODE failed in kernel {record.name!r}; the kernel was not kept.\n"
                + "\n".join(result.error.traceback)
            )

    # -- talking ---------------------------------------------------------------------------------------------

    def connect(self, record: KernelRecord) -> AnyConnection:
        """Returns a connection for one execution at a time; `release` gives it back for the next."""
        pooled = self._pool.take(record)
        if pooled is not None:
            return pooled
        process = process_of(record)
        if process is None:
            raise ConnectionRefusedError("the machine has been restarted")
        if record.engine == "jupyter":
            from kernelbox.host.jupyter._connection import JupyterConnection

            return JupyterConnection(self.store.directory(record.kernel_id), process)
        return Connection(self.store.directory(record.kernel_id), process)

    def release(self, record: KernelRecord, connection: AnyConnection) -> None:
        """Takes a connection back."""
        if connection.ended:
            connection.close()
        else:
            self._pool.give(record, connection)

    def has_connection(self, record: KernelRecord) -> bool:
        """Tells whether a pooled connection shows that the kernel lives, without a look at the file system."""
        return self._pool.has(record)

    def forget_connections(self, record: KernelRecord) -> None:
        """Closes the connections that are kept for the next execution."""
        self._pool.drop(record)

    def interrupt(self, key: str) -> bool:
        """Interrupts whatever the kernel is running; returns whether it was running anything."""
        from kernelbox.wire._messages import Interrupt

        record = self.get(key)
        if record.status != "running":
            return False
        try:
            connection = self.connect(record)
        except OSError:
            return False  # it has ended since
        connection.send(Interrupt())
        self.release(record, connection)
        return True

    # -- ending ----------------------------------------------------------------------------------------------

    def restart(self, key: str, *, reason: str = "restarted") -> KernelRecord:
        """Ends the kernel's process and starts another under the same name and id; `lost` says what went with it."""
        record = self.get(key)
        with self.store.locking(*record.names):
            current = self.store.get(record.kernel_id)
            if current is None:
                raise KernelNotFound(key)
            self.refresh(current)
            if current.start_time != record.start_time and current.alive:
                return current  # somebody restarted it while we waited
            _engine_of(current.kernel_type, current.engine)  # or it would be ended, and could not be started again
            current.lost = _describe_loss(current)
            self._end_process(current, reason)
            self.forget_connections(current)
            current.status, current.pid = "unknown", None
            self.store.save(current)
            self._start(current)
            return self.refresh(current)

    def destroy(self, key: str, *, reason: str = "destroyed") -> bool:
        """Ends a kernel, its children and its files; returns whether there was one."""
        check_name(key)
        record = self.find(key)
        return record is not None and self._destroy(record, reason)

    def wipe(self) -> list[str]:
        """Destroys every kernel, and ends the templates; returns the ids of the kernels."""
        from concurrent.futures import ThreadPoolExecutor

        from kernelbox.host.own._templates import dismiss_templates

        records = self.store.all()
        with ThreadPoolExecutor(_HANDS) as pool:
            gone = list(pool.map(lambda record: self._destroy(record, "destroyed", publish=False), records))
        self.store.publish_all()
        self.store.sweep()
        dismiss_templates(self.store.runtime_dir)
        return [record.kernel_id for record, destroyed in zip(records, gone, strict=True) if destroyed]

    def _destroy(self, record: KernelRecord, reason: str, *, publish: bool = True) -> bool:
        with self.store.locking(*record.names):
            current = self.store.get(record.kernel_id)
            if current is None:
                return False
            self._discard(current, reason, publish=publish)
            return True

    def cull(self) -> list[str]:
        """Ends the kernels that are stale, and returns their ids; each name tells so when it is next used.

        The kernel itself decides, between cells: one that has become busy meanwhile is left alone.
        """
        stale = [record for record in self.all() if record.stale]
        return [record.kernel_id for record in stale if self._cull(record)]

    def _cull(self, record: KernelRecord) -> bool:
        if not self.refresh(record).stale:
            return False
        if self.ask(record, "leave", {"unused_for": self.config.kernel_idle_timeout}) is not None:
            return False
        process = process_of(record)
        return process is not None and process.wait(TERMINATE_PATIENCE)

    def _end_process(self, record: KernelRecord, reason: str) -> None:
        process = process_of(record)
        if process is not None:
            end_process(self.store.directory(record.kernel_id), process, reason, engine=record.engine)

    def _discard(self, record: KernelRecord, reason: str, *, publish: bool = True) -> None:
        """Ends what there is of a kernel; the caller holds the name's lock."""
        self._end_process(record, reason)
        self._environments.pop(record.kernel_id, None)
        self.forget_connections(record)
        self.store.remove(record, publish=publish)


def process_of(record: KernelRecord) -> Process | None:
    """Returns the process of a record, None if it cannot be alive because the machine was restarted since."""
    if record.pid is None or record.boot_id != boot_id():
        return None
    return Process(record.pid, record.start_time)


def _engine_of(kernel_type: str, engine: str) -> str:
    """Returns what runs a kernel type: `python3` is our own, unless KERNELBOX_ENGINE says otherwise.

    Raises InvalidInput for a type that nothing can run.
    """
    if kernel_type == "python3" and engine == "kernelbox":
        return engine
    from kernelbox.host.jupyter._spec import find_spec

    find_spec(kernel_type)
    return "jupyter"


def _describe_loss(record: KernelRecord) -> str:
    """Says what ends with a kernel's process."""
    count = record.attempt_count
    lost = f"the variables of {count} execution{'s' if count > 1 else ''}" if count else "nothing: no cell had run"
    return f"{lost}; it had died: {record.death}" if record.status == "dead" else lost
