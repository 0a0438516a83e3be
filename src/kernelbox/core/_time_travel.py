"""Copies of live kernels: branches, which live on their own, and checkpoints, to which a kernel can be set back.

If a step is cut short, the kernel's keeper finishes or undoes it, until the processes are those that records name.
"""

from __future__ import annotations

import contextlib
import os

from kernelbox.base._errors import (
    CannotCopy,
    CheckpointNotFound,
    InvalidInput,
    KernelExists,
    KernelNotFound,
)
from kernelbox.core._arguments import check_name, check_switch, check_timeout
from kernelbox.core._copy_request import CopyRequest
from kernelbox.host._engines import engine_named
from kernelbox.host.engines._interface import CopyPlan
from kernelbox.host.engines._local import identify, process_of
from kernelbox.host.process._process import boot_id, parent_of
from kernelbox.host.store._checkpoint_files import (
    MAX_LABEL,
    WHY_EVICTED,
    Checkpoint,
    list_evicted,
    next_number,
    read_checkpoints,
    read_evicted,
    remove_checkpoint,
    write_checkpoint,
)
from kernelbox.host.store._death_notes import ROLLED_BACK, write_reason
from kernelbox.host.store._record import KernelRecord, now
from kernelbox.wire._layout import RECORD
from kernelbox.wire._messages import Copy, Release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelbox.core._kernels import Kernels
    from kernelbox.host.engines._interface import Fostering
    from kernelbox.host.engines._local import Engine

# The most executions that a record names as lost; the last ones count.
_MOST_LOST = 1_000


def branch(
    kernels: Kernels, key: str, names: Sequence[str], *, reseed: bool = True, timeout: float | None = None
) -> list[KernelRecord]:
    """Copies a live kernel, with all its variables, into kernels of these names. It waits until no cell runs.

    Raises CannotCopy, KernelExists, KernelBusy after the timeout, and what `Kernels.get` raises.
    """
    _check_names(names)
    patience, reseed = check_timeout(timeout, kernels.config.execution_timeout), check_switch("reseed", reseed)
    source = _get_live(kernels, key)
    engine = _require_engine(source, branch=True)
    with kernels.store.locking(*names), contextlib.ExitStack() as undo, contextlib.ExitStack() as stack:
        for name in names:
            other = kernels.find(name)
            if other is not None and other.alive:
                raise KernelExists(name)
            if other is not None:
                kernels.discard(other, "replaced")
        begun = [_begin_branch(kernels, engine, source, name, stack, undo) for name in names]
        request = Copy("", [each.token for _, each in begun], reseed=reseed)
        asked = stack.enter_context(CopyRequest(kernels, source, request, patience))
        for record, fostering in begun:
            asked.wait_for(fostering)
            identify(record, fostering.wait())
            record.status = "idle"
            kernels.store.publish(record)  # first: a process that no record names could not be found again
        asked.finish()
        for _, fostering in begun:
            fostering.settle()
        undo.pop_all()
    return [record for record, _ in begun]


def checkpoint(kernels: Kernels, key: str, *, label: str | None = None, timeout: float | None = None) -> Checkpoint:
    """Freezes a copy of a live kernel, to which `rollback` sets it back. It waits until no cell runs.

    Old checkpoints are dropped where there are too many. `evicted` are their numbers, and those of others that were
    dropped since the last one was made. Raises as `branch` does.
    """
    if label is not None and (len(check_name(label)) > MAX_LABEL or label.isdecimal()):
        raise InvalidInput("label", label, f"use up to {MAX_LABEL} characters that are not just a number")
    patience = check_timeout(timeout, kernels.config.execution_timeout)
    record = _get_live(kernels, key)
    engine = _require_engine(record, branch=False)
    directory = kernels.store.directory(record.kernel_id)
    # Not the lock of its name: a cell that is waited for must be able to be killed, which needs that one.
    with kernels.store.locking(f"{record.kernel_id} checkpoints"), directory.open() as place:
        number = next_number(place)
        plan = CopyPlan(
            record,
            directory,
            record,
            directory,
            checkpoint=number,
            checkpoint_memory=kernels.config.checkpoint_memory,
            checkpoint_age=kernels.config.checkpoint_age,
        )
        with engine.foster(plan) as fostering:
            with CopyRequest(kernels, record, Copy("", [fostering.token], frozen=True), patience) as asked:
                told = asked.finish()
            spawned = fostering.wait()
            made = Checkpoint(
                record.kernel_id,
                number,
                label,
                now(),
                told,
                spawned.pid,
                spawned.start_time,
                boot_id(),
            )
            write_checkpoint(place, directory, made)
            fostering.settle()
        found = read_checkpoints(directory)
        evicted = list_evicted(directory, number - 1) + _evict(kernels, record, found, told=True)
    return Checkpoint(**{**made.to_dict(), "evicted": evicted})


def checkpoints(kernels: Kernels, key: str) -> list[Checkpoint]:
    """Returns the checkpoints of a kernel, oldest first, and the memory that each has for itself.

    `evicted` in the last one are those that were dropped since it was made.
    """
    record = kernels.get(key)
    directory = kernels.store.directory(record.kernel_id)
    with kernels.store.locking(f"{record.kernel_id} checkpoints"):
        limit = kernels.config.checkpoint_memory
        found = engine_named(record.engine).measure_checkpoints(directory, limit=limit)
        evicted = _evict(kernels, record, found)
        found = [each for each in found if each.number not in evicted]
        if found:
            found[-1] = Checkpoint(**{**found[-1].to_dict(), "evicted": list_evicted(directory)})
    return found


def drop(kernels: Kernels, kernel_id: str, number: int) -> bool:
    """Ends a checkpoint; returns whether there was one."""
    directory = kernels.store.directory(kernel_id)
    there_was = any(each.number == number for each in read_checkpoints(directory))
    record = kernels.store.get(kernel_id)
    if record is not None:
        engine_named(record.engine).release_checkpoints(directory, Release(kernel_id, number))
    remove_checkpoint(directory, number)
    return there_was


def rollback(kernels: Kernels, key: str, to: Checkpoint | int | str | None = None) -> KernelRecord:
    """Sets a kernel back to a checkpoint, by number or label, or the last one. It keeps its name and id.

    A running cell is ended, and its result says so. The checkpoint stays. Raises CheckpointNotFound or CannotCopy.
    """
    record = kernels.get(key)
    with kernels.store.locking(*record.names):
        current = kernels.find(record.kernel_id)
        if current is None:
            raise KernelNotFound(key)
        _require_engine(current, branch=False)
        chosen = _choose(kernels, current, to)
        return _set_back(kernels, current, chosen, f"{ROLLED_BACK}{chosen.number}")


def restore(kernels: Kernels, seen: KernelRecord, reason: str = "") -> KernelRecord | None:
    """Sets a kernel whose process has ended, or must end, back to its last checkpoint.

    Returns None if it has none. If another process has replaced that one since, the record of it is returned.
    """
    if not _may_come_back(kernels, seen):
        return None
    with kernels.store.locking(*seen.names):
        current = kernels.store.get(seen.kernel_id)
        if current is None:
            return None
        if current.process != seen.process:
            current = kernels.condition.refresh(current)
            return current if current.alive else None
        return restore_locked(kernels, kernels.condition.refresh(current), reason)


def restore_locked(kernels: Kernels, record: KernelRecord, reason: str = "") -> KernelRecord | None:
    """Does what `restore` does; the caller holds the lock of the kernel's name, and has looked at the record."""
    for chosen in reversed(read_checkpoints(kernels.store.directory(record.kernel_id))):
        with contextlib.suppress(CannotCopy, CheckpointNotFound):  # the one before may still be there
            return _set_back(kernels, record, chosen, reason)
    return None


def promote(kernels: Kernels, key: str, *, timeout: float | None = None) -> KernelRecord:
    """Replaces a kernel by a live branch of it; the kernel keeps its name and id.

    The branch itself no longer exists then. Raises as `branch` does, and InvalidInput if the kernel is not a branch.
    """
    patience = check_timeout(timeout, kernels.config.execution_timeout)
    chosen = _get_live(kernels, key)
    original = None if chosen.parent is None else kernels.find(chosen.parent)
    if original is None:
        raise InvalidInput.saying(f"kernel {chosen.name!r} cannot be promoted: it is not a branch of another kernel")
    engine = _require_engine(chosen, branch=True)
    if original.alive and parent_of(original.pid or 0) != parent_of(chosen.pid or 0):
        raise CannotCopy(chosen.name, [f"kernel {original.name!r} was restarted since; use the branch by its own name"])
    with kernels.store.locking(*original.names, *chosen.names):
        current = kernels.find(original.kernel_id)
        if current is None:
            raise KernelNotFound(original.name)
        directory = kernels.store.directory(current.kernel_id)
        plan = CopyPlan(chosen, kernels.store.directory(chosen.kernel_id), current, directory, heir=True)
        with engine.foster(plan) as fostering:
            with CopyRequest(kernels, chosen, Copy("", [fostering.token], reseed=False), patience) as asked:
                asked.finish()
            current.restored_from, current.lost_executions = None, []
            _succeed(kernels, current, fostering, f"its branch {chosen.name!r} took its place")
        kernels.discard(chosen, "promoted")
    return kernels.condition.refresh(current)


def choose_names(name: str | None, names: Sequence[str] | None) -> list[str]:
    """Returns the names of the branches that a caller wants; raises InvalidInput unless it gives one or several."""
    if (name is None) == (names is None):
        raise InvalidInput.saying("branch() takes the name of one branch, or `names` for several")
    if isinstance(names, str):  # each of its characters would be a name
        raise InvalidInput("names", names, f"use a list, or {names!r} alone for one branch")
    return [name] if name is not None else list(names or ())


def choose_number(kernels: Kernels, key: str, wanted: Checkpoint | int | str) -> int | None:
    """Returns the number of a checkpoint that a caller names in any way; None if the kernel does not have it."""
    record = kernels.get(key)
    if isinstance(wanted, Checkpoint):
        return wanted.number if wanted.kernel_id == record.kernel_id else None
    try:
        return _choose(kernels, record, wanted).number
    except CheckpointNotFound:
        return None


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        check_name(name)
    if not names or len(set(names)) != len(names):
        raise InvalidInput("the names of branches", list(names), "use at least one name, and each once")


def _get_live(kernels: Kernels, key: str) -> KernelRecord:
    record = kernels.get(key)
    if not record.alive:
        raise kernels.kernel(record).died(record.death or "unknown")
    return record


def _require_engine(record: KernelRecord, *, branch: bool) -> Engine:
    """Returns the engine of a kernel that can be copied; raises CannotCopy for one that cannot."""
    engine = engine_named(record.engine)
    if refusals := engine.find_refusals(record, branch=branch):
        raise CannotCopy(record.name, refusals)
    return engine


def _begin_branch(
    kernels: Kernels,
    engine: Engine,
    source: KernelRecord,
    name: str,
    stack: contextlib.ExitStack,
    undo: contextlib.ExitStack,
) -> tuple[KernelRecord, Fostering]:
    """Makes the record and the directory of a branch, and announces it to the keeper."""
    record = _copy_of(source)
    record.kernel_id = os.urandom(16).hex()
    record.connection_file = kernels.store.directory(record.kernel_id).path_of(RECORD)
    record.name = record.session_name = name
    record.created_at = record.last_used_at = now()
    record.status, record.busy_since, record.stale = "unknown", None, False
    record.pid, record.start_time, record.groups, record.usage = None, 0, [], None
    record.tags, record.lost = dict(source.tags), None
    record.parent, record.restored_from, record.lost_executions, record.copied = source.kernel_id, None, [], True
    kernels.pass_environment(source, record)
    kernels.store.add(record)
    undo.callback(kernels.discard, record, "its start was cut short")
    disk_before = home = 0
    if record.limits:
        from kernelbox.host.engines._limiting import prepare_limits
        from kernelbox.host.engines._spawning import inode_of_home

        disk_before = prepare_limits(record, kernels.config.home, use_groups=kernels.config.cgroups)
        home = inode_of_home(kernels.config.home, record.cwd) if "disk" in record.limits else 0
    directories = (kernels.store.directory(source.kernel_id), kernels.store.directory(record.kernel_id))
    plan = CopyPlan(source, directories[0], record, directories[1], disk_before=disk_before, home=home)
    return record, stack.enter_context(engine.foster(plan))


def _choose(kernels: Kernels, record: KernelRecord, wanted: Checkpoint | int | str | None) -> Checkpoint:
    if isinstance(wanted, Checkpoint):
        wanted = wanted.number if wanted.kernel_id == record.kernel_id else repr(wanted)
    found = read_checkpoints(kernels.store.directory(record.kernel_id))
    for each in reversed(found):
        if wanted is None or wanted in (each.number, each.label):
            return each
    evicted = read_evicted(kernels.store.directory(record.kernel_id))
    why = evicted.get(wanted, "") if isinstance(wanted, int) else ""
    if wanted is None and evicted and evicted[max(evicted)] == "age":  # for the other reasons the newest stays
        why = "age"
    raise CheckpointNotFound(record.name, wanted, WHY_EVICTED.get(why, ""))


def _set_back(kernels: Kernels, record: KernelRecord, chosen: Checkpoint, reason: str) -> KernelRecord:
    """Puts a copy of a checkpoint in the place of a kernel's process; the caller holds the lock of its name."""
    engine, directory = engine_named(record.engine), kernels.store.directory(record.kernel_id)
    state = engine.state(directory)
    last = state.execution_count if state is not None else chosen.execution_count
    plan = CopyPlan(record, directory, record, directory, thaw=chosen.number, heir=True)
    with engine.foster(plan) as fostering:
        record.restored_from = chosen.number
        record.lost_executions = list(range(chosen.execution_count + 1, last + 1))[-_MOST_LOST:]
        _succeed(kernels, record, fostering, reason)
    return kernels.condition.refresh(record)


def _succeed(kernels: Kernels, record: KernelRecord, fostering: Fostering, reason: str) -> None:
    """Names an heir in the record of its kernel, and asks the keeper to put it in its place."""
    directory, old, before = kernels.store.directory(record.kernel_id), process_of(record), _copy_of(record)
    spawned = fostering.wait()
    engine_named(record.engine).require_walls(record, spawned)
    if old is not None and old.alive and reason:
        write_reason(directory, old, reason, by_heir=True)
    identify(record, spawned)
    record.status, record.death, record.busy_since, record.copied = "idle", None, None, True
    kernels.store.save(record)  # the keeper acts on it if this process ends before the next step
    fostering.settle()
    kernels.pool.drop(record)
    kernels.log_loss(before, reason or before.death or "unknown")
    kernels.store.register(record)


def _copy_of(record: KernelRecord) -> KernelRecord:
    return KernelRecord(**record.to_dict())


def _may_come_back(kernels: Kernels, seen: KernelRecord) -> bool:
    """Tells, without a lock, whether a kernel has a checkpoint, or has been set back to one."""
    if read_checkpoints(kernels.store.directory(seen.kernel_id)):
        return True
    current = kernels.store.get(seen.kernel_id)
    return current is not None and current.restored_from is not None and current.process != seen.process


def _evict(kernels: Kernels, record: KernelRecord, found: list[Checkpoint], *, told: bool = False) -> list[int]:
    """Drops the oldest of too many checkpoints; the keeper drops those that are too old or too large.

    `told` says that the maker of a new one learns which were dropped.
    """
    evicted = [each.number for each in found[: -kernels.config.checkpoints]]
    engine, directory = engine_named(record.engine), kernels.store.directory(record.kernel_id)
    for number in evicted:
        release = Release(record.kernel_id, number, wait=not told, why="number", told=told)
        engine.release_checkpoints(directory, release)
        remove_checkpoint(directory, number)
    return evicted
