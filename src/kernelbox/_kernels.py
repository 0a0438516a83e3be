"""Kernels: open, get, list, interrupt, restart, destroy. Everything that changes a kernel's life goes through here."""

from __future__ import annotations

import os
import signal
import time

from kernelbox._config import kernel_environment
from kernelbox._errors import InvalidInput, KernelExists, KernelNotFound, StartFailed
from kernelbox.host import _death
from kernelbox.host._connection import Connection
from kernelbox.host._process import Process, boot_id
from kernelbox.host._record import KernelRecord, format_time
from kernelbox.host._store import RECORD, Store, is_kernel_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kernelbox._config import KernelBoxConfig

    Lifetime = Literal["kernel", "process"]

MAX_NAME = 1000

# A kernel asked to end runs its exit functions in this time; then it is killed.
_TERMINATE_PATIENCE = 0.5
_KILL_PATIENCE = 5.0


class Kernels:
    """The kernels of one configuration, shared with every other process that has the same."""

    def __init__(self, config: KernelBoxConfig) -> None:
        self.config = config
        self.store = _open_store(config)
        self._pool: dict[str, list[Connection]] = {}
        self._pool_pid = os.getpid()
        # What kernels opened here were given that no record keeps: environments hold secrets.
        self._origins: dict[str, tuple[dict[str, str] | None, Lifetime]] = {}

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
        return [self.refresh(record) for record in self.store.all()]

    def refresh(self, record: KernelRecord) -> KernelRecord:
        """Fills in what a record says of the moment: status, last use, and how a dead kernel ended."""
        directory = self.store.directory(record.kernel_id)
        state = _death.read_state(directory)
        if state is not None:
            record.attempt_count = state.executions
            record.last_used_at = format_time(state.last_used) if state.last_used else record.last_used_at
            record.busy_since = format_time(state.busy_since) if state.busy_since else None
        process = process_of(record)
        if process is None or not process.alive:
            record.status, record.busy_since = "dead", None
            record.death = record.death or _death.find_cause(directory, process or Process(0, -1))
            return record
        busy = state is not None and state.activity == "busy"
        record.status = "running" if busy else "idle"
        idle_for = time.time() - state.last_used if state is not None and state.last_used else 0.0
        record.stale = not busy and 0 < self.config.kernel_idle_timeout < idle_for
        return record

    # -- opening ---------------------------------------------------------------------------------------------

    def get_or_create(self, name: str, **options: object) -> KernelRecord:
        """Returns the live kernel of a name; opens one if there is none."""
        check_name(name)
        record = self.find(name)
        if record is not None and record.status != "dead":
            return record
        with self.store.locking(name):
            record = self.find(name)
            if record is not None and record.status != "dead":
                return record
            if record is not None:
                self._forget(record)
            return self._open(name, **options)  # type: ignore[arg-type]  # checked by _open's signature

    def create(self, name: str, **options: object) -> KernelRecord:
        """Opens a kernel under a name that no live kernel has; raises KernelExists."""
        check_name(name)
        with self.store.locking(name):
            record = self.find(name)
            if record is not None and record.status != "dead":
                raise KernelExists(name)
            if record is not None:
                self._forget(record)
            return self._open(name, **options)  # type: ignore[arg-type]  # checked by _open's signature

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
    ) -> KernelRecord:
        kernel_id = os.urandom(16).hex()
        directory = self.store.create_directory(kernel_id)
        now = format_time(time.time())
        record = KernelRecord(
            kernel_id=kernel_id,
            connection_file=os.path.join(directory, RECORD),
            name=name,
            session_name=session_name or name,
            created_at=now,
            last_used_at=now,
            tags=dict(tags or {}),
            kernel_type=kernel_type or self.config.kernel_type,
            cwd=os.path.abspath(cwd) if cwd else _working_directory(),
        )
        self._origins[kernel_id] = (env, lifetime)
        try:
            self._start(record, env=env, lifetime=lifetime)
        except BaseException:
            self._forget(record)
            raise
        return record

    def _start(self, record: KernelRecord, *, env: dict[str, str] | None, lifetime: Lifetime = "kernel") -> None:
        """Starts the process of a record, keeps the record, and runs the start-up code."""
        from kernelbox.host._launch import has_warm_template, launch
        from kernelbox.host._lifeline import lifeline
        from kernelbox.wire._messages import Spawn

        directory = self.store.directory(record.kernel_id)
        outlives_us = lifetime == "kernel" and self.config.store_backend == "file"
        spawn = Spawn(
            kernel_id=record.kernel_id,
            directory=directory,
            cwd=record.cwd,
            env=kernel_environment() if env is None else env,
            umask=_umask(),
            lifeline=not outlives_us,
            idle_timeout=self.config.kernel_idle_timeout if self.config.cull_idle else 0.0,
        )
        spawned = launch(
            spawn,
            template=self.store.runtime_dir if self.config.template and has_warm_template() else None,
            preload=self.config.preload,
            idle_timeout=self.config.template_idle_timeout,
            lifeline=-1 if outlives_us else lifeline(),
        )
        record.pid, record.start_time, record.boot_id = spawned.pid, spawned.start_time, boot_id()
        record.status, record.death, record.busy_since = "idle", None, None
        if self.config.startup_code:
            self._run_startup_code(record)
        self.store.save(record)

    def _run_startup_code(self, record: KernelRecord) -> None:
        from kernelbox._blocking import run

        result = run(self, record, self.config.startup_code, store_history=False, timeout=self.config.execution_timeout)
        if not result.ok:
            assert result.error is not None
            self._end_process(record, "its start-up code failed")
            raise StartFailed(
                f"KERNELBOX_STARTUP_CODE failed in kernel {record.name!r}; the kernel was not kept.\n"
                + "\n".join(result.error.traceback)
            )

    # -- talking ---------------------------------------------------------------------------------------------

    def connect(self, record: KernelRecord) -> Connection:
        """Returns a connection for one execution at a time; `release` gives it back for the next."""
        if self._pool_pid != os.getpid():  # we are a fork: the connections are our parent's
            self._pool, self._pool_pid = {}, os.getpid()
        pooled = self._pool.get(record.kernel_id)
        while pooled:
            try:
                connection = pooled.pop()
            except IndexError:
                break
            if connection.idle and connection.process.start_time == record.start_time:
                return connection
            connection.close()
        process = process_of(record)
        if process is None:
            raise ConnectionRefusedError("the machine has been restarted")
        return Connection(self.store.directory(record.kernel_id), process)

    def release(self, record: KernelRecord, connection: Connection) -> None:
        if connection.ended:
            connection.close()
        else:
            self._pool.setdefault(record.kernel_id, []).append(connection)

    def has_connection(self, record: KernelRecord) -> bool:
        """Tells whether a pooled connection shows that the kernel lives, without a look at the file system."""
        pooled = self._pool.get(record.kernel_id) if self._pool_pid == os.getpid() else None
        return bool(pooled) and any(c.idle and c.process.start_time == record.start_time for c in pooled or ())

    def interrupt(self, key: str) -> bool:
        """Interrupts whatever the kernel is running; returns whether it was running anything."""
        from kernelbox.wire._messages import Interrupt

        record = self.get(key)
        if record.status != "running":
            return False
        connection = self.connect(record)
        connection.send(Interrupt())
        self.release(record, connection)
        return True

    # -- ending ----------------------------------------------------------------------------------------------

    def restart(self, key: str, *, reason: str = "restarted") -> KernelRecord:
        """Ends the kernel's process and starts another under the same name and id; its variables are lost."""
        record = self.get(key)
        with self.store.locking(record.name):
            current = self.store.get(record.kernel_id)
            if current is None:
                raise KernelNotFound(key)
            if current.start_time != record.start_time:
                return self.refresh(current)  # somebody restarted it while we waited
            self._end_process(current, reason)
            self._clear_traces(current)
            env, lifetime = self._origins.get(current.kernel_id, (None, "kernel"))
            self._start(current, env=env, lifetime=lifetime)
            return self.refresh(current)

    def destroy(self, key: str) -> bool:
        """Ends a kernel, its children and its files; returns whether there was one."""
        check_name(key)
        record = self.find(key)
        if record is None:
            return False
        with self.store.locking(record.name):
            current = self.store.get(record.kernel_id)
            if current is None:
                return False
            self._end_process(current, "destroyed")
            self._forget(current)
            return True

    def wipe(self) -> list[str]:
        """Destroys every kernel; returns their ids."""
        return [record.kernel_id for record in self.store.all() if self.destroy(record.kernel_id)]

    def _end_process(self, record: KernelRecord, reason: str) -> None:
        """terminate → kill → wait for the keeper to have cleaned up after it."""
        directory = self.store.directory(record.kernel_id)
        process = process_of(record)
        if process is None or not os.path.isdir(directory):
            return
        _death.announce(directory, process, reason)
        if process.signal(signal.SIGTERM) and not process.wait(_TERMINATE_PATIENCE):
            process.signal(signal.SIGKILL)
            process.wait(_KILL_PATIENCE)
        if _death.wait_for_note(directory, process) is None:
            process.kill_session()  # its keeper is gone
        process.close()

    def _clear_traces(self, record: KernelRecord) -> None:
        for connection in self._pool.pop(record.kernel_id, ()):
            connection.close()

    def _forget(self, record: KernelRecord) -> None:
        self._origins.pop(record.kernel_id, None)
        for connection in self._pool.pop(record.kernel_id, ()):
            connection.close()
        self.store.remove(record)


def process_of(record: KernelRecord) -> Process | None:
    """Returns the process of a record, None if it cannot be alive because the machine was restarted since."""
    if record.pid is None or record.boot_id != boot_id():
        return None
    return Process(record.pid, record.start_time)


def check_name(name: object) -> str:
    """Returns a usable name; raises InvalidInput."""
    allowed = f"use 1 to {MAX_NAME:,} characters without control characters"
    if not isinstance(name, str):
        raise InvalidInput("a kernel's name", name, "use a string")
    if not name.strip() or len(name) > MAX_NAME or not all(map(_is_printable, name)):
        raise InvalidInput("a kernel's name", name, allowed)
    return name


def _is_printable(character: str) -> bool:
    return ord(character) >= 32 and not 0x7F <= ord(character) <= 0x9F and not 0xD800 <= ord(character) <= 0xDFFF


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as exc:
        raise StartFailed("the current directory has been deleted; change to another or pass cwd=") from exc


def _umask() -> int:
    """Returns the umask; on Linux without the moment in which setting it to ask would change it for other threads."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _open_store(config: KernelBoxConfig) -> Store:
    if config.store_backend == "file":
        return Store(config.runtime_dir, config.registry_path)
    from kernelbox.host._scratch import scratch_directory

    return Store(scratch_directory(), None)
