"""Kernels: find, open, interrupt, restart, destroy. Everything that changes a kernel's life goes through here."""

from __future__ import annotations

from kernelbox.base._errors import KernelBoxError, KernelExists, KernelNotFound, StoreFailed
from kernelbox.base._light_stdlib import contextmanager, suppress
from kernelbox.base._unique_objects import Handle
from kernelbox.core._arguments import check_name
from kernelbox.core._kernel_condition import Condition
from kernelbox.core._kernel_handle import ConnectionPool, KernelHandle
from kernelbox.core._options import NO_OPTIONS, KernelOptions
from kernelbox.host._engines import engine_named
from kernelbox.host.files._home import Home
from kernelbox.host.store._record import RESTART_FAILED, KernelRecord
from kernelbox.host.store._store import open_store
from kernelbox.wire._layout import is_kernel_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import ExecutionResult


class Kernels(Handle):
    """The kernels of one configuration, shared with every other process that has the same."""

    def __init__(
        self, config: KernelBoxConfig, run: Callable[[KernelHandle, Execute, float | None], ExecutionResult]
    ) -> None:
        """`run` drives a cell to its end; the start-up code is one."""
        self.config = config
        self.home = Home(config.home, config.key_file)
        self.store = open_store(config)
        self.condition = Condition(self.store, config.kernel_idle_timeout)
        self.pool = ConnectionPool(self.store.runtime_dir)
        self.run = run
        # The environments of kernels opened here. Records do not keep them, because they may hold secrets.
        self._environments: dict[str, dict[str, str] | None] = {}
        self.openings: set[str] = set()  # the ids of kernels that were opened for a cell whose result has not come yet

    # -- finding ---------------------------------------------------------------------------------------------

    def find(self, key: str) -> KernelRecord | None:
        """Returns the record of an id, name or session name, as it is now."""
        record = (self.store.get(key) if is_kernel_id(key) else None) or self.store.find(key)
        record = record or self._find_deleted(key)
        return None if record is None else self.condition.refresh(record)

    def _find_deleted(self, name: str) -> KernelRecord | None:
        """Returns the kernel of a name whose files are gone but whose process lives: it must be ended."""
        record = self.store.find_deleted(name)
        return record if record is not None and self.condition.has_process(record) else None

    def _find_live(self, name: str) -> KernelRecord | None:
        """Returns the live kernel that a name leads to: the quick look before one is opened under the name's lock."""
        record = self.store.find(name, thorough=False)
        if record is not None:
            record = self.condition.refresh(record)
        return record if record is not None and record.alive else None

    def get(self, key: str) -> KernelRecord:
        """Like `find`; raises KernelNotFound."""
        record = self.find(key)
        if record is None:
            raise KernelNotFound(key, self.config.home)
        return record

    def look(self, key: str) -> KernelRecord:
        """Like `get`; a kernel is also asked for a sign of life if a thread may hold it, and its usage is measured."""
        from kernelbox.core._every_kernel import note_held
        from kernelbox.host.engines._limiting import measured

        record = self.get(key)
        note_held(self, [record])
        return measured([record])[0]

    def settled(self, kernel_id: str) -> KernelRecord | None:
        """Returns the record of an id as it is when no other process is starting, restarting or destroying it."""
        record = self.find(kernel_id)
        if record is None or record.alive or not self.store.is_changing(record.name):
            return record
        with self.store.locking(*record.names):
            return self.find(kernel_id)

    def kernel(
        self,
        record: KernelRecord,
        *,
        environment: dict[str, str] | None = None,
        describe: Callable[[Exception], str] = str,
    ) -> KernelHandle:
        """Returns a handle to a kernel; `environment` is what a new process of it gets.

        `describe` says, in the result of a cell, why there could be no new process.
        """
        return KernelHandle(self, record, environment=environment, describe=describe)

    def environment_given(self, kernel_id: str) -> dict[str, str] | None:
        """Returns the environment that this process opened a kernel with; None if it gave none."""
        return self._environments.get(kernel_id)

    # -- opening ---------------------------------------------------------------------------------------------

    def get_or_create(self, name: str, options: KernelOptions = NO_OPTIONS, *, as_it_is: bool = False) -> KernelRecord:
        """Returns the live kernel of a name; opens one if there is none.

        Raises KernelExists if the live one differs from the options. With `as_it_is` only its walls and its interpreter
        are compared. A kernel that follows a dead one has the terms of its name.
        """
        check_name(name)
        record = self._find_live(name)
        if record is None:
            self._prepare_environment(options)
            with self._locking(*options.names(name)) as record:
                if record is None or not record.alive:
                    restored = self._restore(record)
                    if restored is None:
                        return self._open(name, options, record, as_it_is=as_it_is)
                    record = restored
        known = self._environments.get(record.kernel_id)
        differences = options.walls_differences(record) if as_it_is else options.differences(record, known)
        if differences:
            raise KernelExists(name, differences)
        return record

    def create(self, name: str, options: KernelOptions = NO_OPTIONS, *, as_it_is: bool = False) -> KernelRecord:
        """Opens a kernel under a name that no live kernel has; raises KernelExists.

        A kernel that follows a dead one has the terms of its name. The options may give another directory, unless
        `as_it_is` is set.
        """
        check_name(name)
        self._prepare_environment(options)
        with self._locking(*options.names(name)) as record:
            if record is not None and record.alive:
                raise KernelExists(name)
            return self._open(name, options, record, as_it_is=as_it_is)

    def use(self, name: str, options: KernelOptions = NO_OPTIONS) -> KernelRecord:
        """Returns the kernel for a cell that is sent to a name: the live one, or a new one with these options.

        A kernel that has died since it was last used is returned dead, once: its death must be reported before a new
        one takes its place.
        """
        check_name(name)
        live = self._find_live(name)
        if live is not None:
            return _with_walls(live, options)
        self._prepare_environment(options)
        with self._locking(name) as record:
            if record is not None and record.alive:
                return _with_walls(record, options)
            if record is not None and self.condition.claim_report(record):
                self._end_remains(record)
                return record
            if (restored := self._restore(record)) is not None:
                return _with_walls(restored, options)
            opened = self._open(name, options, record, as_it_is=True)
            self.openings.add(opened.kernel_id)
            return opened

    def _prepare_environment(self, options: KernelOptions) -> None:
        """Makes the environment of a kernel before its name is locked: installing takes longer than others wait."""
        if options.requirements is not None:
            from kernelbox.core._name_terms import terms_of
            from kernelbox.core._starting import new_record

            new_record(terms_of("prepared", options), self)

    @contextmanager
    def _locking(self, name: str, *others: str) -> Iterator[KernelRecord | None]:
        """Locks names, and all other names of the kernel that has the first one; yields that kernel's record."""
        names = {name, *others}
        while True:
            with self.store.locking(*names):
                record = self.find(name)
                if record is None or names.issuperset(record.names):
                    yield record
                    return
            names.update(record.names)

    def follow(self, record: KernelRecord) -> KernelRecord:
        """Returns the current record for one that a caller kept. A kernel that is no longer found is dead.

        Raises StoreFailed if its kernel lives where this process cannot reach it: in another home, or a moved one.
        """
        found = self.settled(record.kernel_id)
        if found is not None:
            return found
        record.status, record.death = "dead", record.death or "destroyed"
        if self.condition.has_process(record):
            self.condition.require_same_place(record)
            record.death = "its files were deleted"
            self.end_process(record, record.death)
        return record

    def _end_remains(self, dead: KernelRecord) -> None:
        """Ends what is left of a dead kernel, and keeps its record, which holds the terms of its name."""
        if self.condition.has_process(dead):
            self.end_process(dead, dead.death or "")
        if self.condition.is_unreachable(dead):
            was_reported = self.condition.was_reported(dead)
            self.store.remake(dead)
            if was_reported:
                self.condition.claim_report(dead)

    def _restore(self, dead: KernelRecord | None) -> KernelRecord | None:
        """Sets a dead kernel back to its last checkpoint, if it has one; the caller holds the name's lock."""
        from kernelbox.host.store._checkpoint_files import has_checkpoints

        if dead is None or not has_checkpoints(self.store.directory(dead.kernel_id)):
            return None
        from kernelbox.core._time_travel import restore_locked  # few kernels have checkpoints

        return restore_locked(self, dead)

    def pass_environment(self, source: KernelRecord, branch: KernelRecord) -> None:
        """Remembers for a branch what its original was opened with."""
        self._environments[branch.kernel_id] = self._environments.get(source.kernel_id)

    def _open(self, name: str, options: KernelOptions, dead: KernelRecord | None, *, as_it_is: bool) -> KernelRecord:
        """Opens a kernel under a name, on the terms of the dead one whose place it takes; the caller holds the locks.

        The record of the dead one is removed when the new kernel has started: until then it holds the terms.
        """
        from kernelbox.core._name_terms import terms_after, terms_of
        from kernelbox.core._starting import new_record, start  # few calls of the command line open a kernel

        self._require_free(options.session_name, dead)
        if dead is None:
            terms = terms_of(name, options)
        else:
            given = self._environments.get(dead.kernel_id)
            terms = terms_after(dead, name, options, given, self.config.limits, as_it_is=as_it_is)
        record = new_record(terms, self)
        if dead is not None:
            if not self.condition.was_reported(dead):
                record.lost = f"the kernel that had this name before: {dead.death}"
            self._end_remains(dead)
        environment = self._environments[record.kernel_id] = terms.options.env
        try:
            self.store.add(record)
            if dead is not None:
                self.log_loss(dead, dead.death or "replaced")
                self.store.carry_cells(dead, record)
            start(self, record, environment)
        except BaseException:
            self.discard(record, "its start was cut short")
            if dead is not None:
                with suppress(StoreFailed):  # it has a record, and only lacks what leads there fast
                    self.store.save(dead)
            raise
        if dead is not None:
            self.discard(dead, "replaced")
            self._discard_namesakes(record)
        return record

    def log_loss(self, record: KernelRecord, cause: str) -> None:
        """Notes in the log of a kernel's cells that their variables are lost, and the unsent output of the last one."""
        from kernelbox.host.store._cell_files import note_loss

        engine, directory = engine_named(record.engine), self.store.directory(record.kernel_id)
        note_loss(directory, cause, lambda execution_id: engine.leftovers(record, directory, execution_id))

    def _require_free(self, session_name: str | None, dead: KernelRecord | None) -> None:
        """Raises KernelExists if another kernel has a session name, or a dead one with walls had it."""
        other = None if session_name is None else self.find(session_name)
        if session_name is None or other is None or (dead is not None and other.kernel_id == dead.kernel_id):
            return
        if other.alive or other.sandbox is not None or other.limits or other.guarded:
            raise KernelExists(session_name)

    # -- interrupting ----------------------------------------------------------------------------------------

    def interrupt(self, key: str) -> bool:
        """Interrupts the cell that holds the kernel, or what one has left behind; returns whether it was reached.

        Returns False if nothing holds it, and for a thread or C code that ignores signals: only a restart ends those.
        """
        record = self.get(key)
        kernel = self.kernel(record)
        if not record.alive or (record.status == "idle" and kernel.answers()):
            return False
        return kernel.interrupt()

    # -- ending ----------------------------------------------------------------------------------------------

    def restart(
        self,
        key: str,
        *,
        reason: str = "restarted",
        environment: dict[str, str] | None = None,
        ended: KernelRecord | None = None,
    ) -> KernelRecord:
        """Ends the kernel's process and starts another under the same name and id; `lost` says what went with it.

        The new process gets `environment`, or what this process opened the kernel with, or the caller's own. If another
        process gave the kernel its environment, only harmless variables are passed on. A process is left alone if no
        new one can follow it. `ended` is the record of a process that has ended, or must end in any case.
        """
        from kernelbox.core._name_terms import withheld
        from kernelbox.core._starting import end_for_restart, require_restartable, start

        record = self.get(key)
        with self.store.locking(*record.names):
            current = self.store.get(record.kernel_id)
            if current is None:
                raise KernelNotFound(key, self.config.home)
            self.condition.refresh(current)
            seen = ended or record
            if current.process != seen.process and current.alive:
                return current  # another client restarted it while we waited
            require_restartable(current, self, must_end=ended is not None)
            end_for_restart(self, current, seen, reason)
            if environment is None:
                environment = self._environments.get(current.kernel_id)
            try:
                start(self, current, withheld(current) if environment is None else environment)
            except KernelBoxError as exc:
                self._note_failed_restart(current, exc)
                raise
            return self.condition.refresh(current)

    def revive(self, seen: KernelRecord) -> KernelRecord:
        """Starts a kernel anew that the caller has seen dead, unless another client has done so since."""
        return seen if seen.alive else self.restart(seen.kernel_id, ended=seen)

    def _note_failed_restart(self, record: KernelRecord, exc: KernelBoxError) -> None:
        """Notes in the record why there is no process, if none was started."""
        if record.status == "unknown":
            record.status, record.death = "dead", f"{RESTART_FAILED}{exc}"
            with suppress(StoreFailed):  # the same may be wrong again
                self.store.save(record)

    def destroy(self, key: str, *, reason: str = "destroyed") -> bool:
        """Ends a kernel, its children and its files; returns whether there was one."""
        check_name(key)
        record = self.find(key)
        return record is not None and self.destroy_record(record, reason)

    def destroy_record(self, record: KernelRecord, reason: str, *, publish: bool = True) -> bool:
        """Like `destroy`, for a record that has been read; without `publish` the registry is left to the caller."""
        with self.store.locking(*record.names):
            current = self.store.get(record.kernel_id)
            if current is None:
                return False
            self.discard(current, reason, publish=publish)
            if publish:
                self._discard_namesakes(current)
            return True

    def _discard_namesakes(self, record: KernelRecord) -> None:
        """Ends other kernels with a name of this one, which a crash during a replacement may have left."""
        for other in self.store.namesakes(record):
            if not self.condition.refresh(other).alive:
                self.discard(other, "replaced")

    def end_process(self, record: KernelRecord, reason: str) -> None:
        """Ends the process of a record, its checkpoints and what it started; the caller holds the lock of its name."""
        from kernelbox.host.store._checkpoint_files import has_checkpoints

        directory = self.store.directory(record.kernel_id)
        if has_checkpoints(directory):
            from kernelbox.wire._messages import Release  # few kernels have checkpoints

            engine_named(record.engine).release_checkpoints(directory, Release(record.kernel_id))
        engine_named(record.engine).end(record, directory, reason)
        if record.groups:
            from kernelbox.host.engines._limiting import release_limits

            release_limits(record)

    def discard(self, record: KernelRecord, reason: str, *, publish: bool = True) -> None:
        """Ends what there is of a kernel; the caller holds the name's lock."""
        self.end_process(record, reason)
        self._environments.pop(record.kernel_id, None)
        self.pool.drop(record)
        self.store.remove(record, publish=publish)


def _with_walls(record: KernelRecord, options: KernelOptions) -> KernelRecord:
    """Returns a live kernel that has the limits, sandbox and guard that are asked for; raises KernelExists if not."""
    if differences := options.walls_differences(record):
        raise KernelExists(record.name, differences)
    return record
