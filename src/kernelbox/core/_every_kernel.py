"""Operations on every kernel of a home: list them, destroy them, end stale ones, mark those that a thread holds."""

from __future__ import annotations

import time

from kernelbox.base._errors import StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.core._kernel_condition import died_with_owner
from kernelbox.host._engines import ENGINES, engine_named
from kernelbox.host.store._death_notes import CAUSE_PATIENCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.core._kernels import Kernels
    from kernelbox.host.store._record import KernelRecord

# Kernels to ask or destroy at a time. Most of that time is spent waiting for them.
_AT_ONCE = 8

# A kernel that is asked to end has this long for its exit functions.
_LEAVE_PATIENCE = 0.5


def list_all(here: Kernels) -> list[KernelRecord]:
    """Returns every kernel, oldest first, as it is now."""
    deadline = time.monotonic() + CAUSE_PATIENCE  # for all the dead together
    records = [here.condition.refresh(record, patience=deadline - time.monotonic()) for record in here.store.all()]
    records = [record for record in _leading(records) if not _remove_without_owner(here, record)]
    note_held(here, records)
    return records


def note_held(here: Kernels, records: list[KernelRecord]) -> None:
    """Marks kernels that a thread holds as running; most need not be asked."""

    def note(record: KernelRecord) -> bool:
        held = not here.kernel(record).answers() and here.condition.refresh(record).status == "idle"
        if held:
            record.status = "running"
        return held

    doubtful = [record for record in records if here.condition.may_be_held(record)]
    if doubtful:
        _side_by_side(note, doubtful)


def wipe(here: Kernels) -> list[str]:
    """Destroys every kernel, and ends the templates; returns the ids of the kernels."""
    records = here.store.all()
    failures: list[StoreFailed] = []

    def destroy(record: KernelRecord) -> bool:
        try:
            return here.destroy_record(record, "destroyed", publish=False)
        except StoreFailed as exc:
            failures.append(exc)  # the others are still destroyed
            return False

    gone = _side_by_side(destroy, records)
    here.store.publish_all()
    _end_templates(here)
    if failures:
        raise failures[0]
    return [record.kernel_id for record, destroyed in zip(records, gone, strict=True) if destroyed]


def tidy(here: Kernels) -> None:
    """Ends the templates if no kernel is left."""
    if not here.store.all():
        _end_templates(here)


def cull(here: Kernels) -> list[str]:
    """Ends the kernels that are stale, and returns their ids; each name says so when it is next used.

    The kernel itself decides, between cells: one that has become busy meanwhile is left alone.
    """
    stale = [record for record in list_all(here) if record.stale]
    return [record.kernel_id for record in stale if _cull(here, record)]


def _cull(here: Kernels, record: KernelRecord) -> bool:
    if not here.condition.refresh(record).stale:
        return False
    if here.kernel(record).ask("leave", {"unused_for": here.config.kernel_idle_timeout}) is not None:
        return False
    return engine_named(record.engine).wait(record, _LEAVE_PATIENCE)


def _remove_without_owner(here: Kernels, record: KernelRecord) -> bool:
    """Removes the record of a kernel that died with its owner: no process is left to report it to."""
    if not died_with_owner(record):
        return False
    with here.store.locking(*record.names):
        current = here.find(record.kernel_id)
        if current is not None and not died_with_owner(current):
            return False
        if current is not None:
            here.discard(current, "its owner has ended")
        return True


def _end_templates(here: Kernels) -> None:
    here.store.sweep()
    with suppress(FileNotFoundError), here.store.runtime() as runtime:
        for name in ENGINES:
            engine_named(name).tidy(runtime, here.store.secret())


def _leading(records: list[KernelRecord]) -> list[KernelRecord]:
    """Returns records, oldest first, without dead kernels whose name a new one is taking."""
    leading = {name: record for record in records for name in record.names}
    return [record for record in records if record.status != "dead" or leading[record.name] is record]


def _side_by_side(function: Callable[[KernelRecord], bool], records: list[KernelRecord]) -> list[bool]:
    """Calls a function, which waits most of the time, for several records at once."""
    if len(records) <= 1:
        return list(map(function, records))
    try:
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(_AT_ONCE)
        pool.submit(int).result()
    except RuntimeError:  # the interpreter is ending, and starts no more threads
        return list(map(function, records))
    with pool:
        return list(pool.map(function, records))
