"""The condition of a kernel: idle, running, stale, dead or unreachable, and whether its death was reported.

This is the one place that decides it; `host/store/_death_notes.py` finds the cause of a death. A kernel is dead when
its process has ended. It is unreachable, which counts as dead, when clients can no longer reach its process.
"""

from __future__ import annotations

import os
import time

from kernelbox.base._errors import StoreFailed
from kernelbox.host._engines import engine_named
from kernelbox.host.store._death_notes import CAUSE_PATIENCE
from kernelbox.host.store._record import format_time, is_rewritten

# Seconds that a background task may run without a pause before its kernel counts as busy.
_LONGEST_STEP = 0.5

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.host.store._store import Store
    from kernelbox.wire._kernel_state import KernelState


class Condition:
    """Looks at the kernels of a store. One that is idle for longer than `idle_timeout` is stale; 0 means never."""

    def __init__(self, store: Store, idle_timeout: float) -> None:
        self._store = store
        self._idle_timeout = idle_timeout

    def refresh(self, record: KernelRecord, *, patience: float = CAUSE_PATIENCE) -> KernelRecord:
        """Fills in the current fields of a record: status, last use, and how a dead kernel ended."""
        engine, directory = engine_named(record.engine), self._store.directory(record.kernel_id)
        state = engine.state(directory)
        if state is not None:
            record.attempt_count = state.executions
            record.last_used_at = format_time(state.last_used) if state.last_used else record.last_used_at
        if record.status == "unknown":  # as stored: it is being started
            if self._store.is_changing(record.name):
                return record
            current = self._store.get(record.kernel_id)
            if current is not None and current.status != "unknown":
                return self.refresh(current, patience=patience)  # it has started since we read the record
            record.status, record.death = "dead", "its start was cut short"
            return record
        alive, obstacle = engine.is_alive(record), engine.find_obstacle(directory)
        if not alive or obstacle:
            if obstacle and not alive and self._store.get(record.kernel_id) is None:
                obstacle = "destroyed"  # since we read the record
            death = obstacle if alive else record.death or obstacle or self.cause(record, patience=patience)
            record.status, record.busy_since, record.stale, record.death = "dead", None, False, death
            return record
        busy = state is not None and (state.activity == "busy" or _is_held(state))
        record.status = "running" if busy else "idle"
        record.busy_since = format_time(state.busy_since) if busy and state is not None and state.busy_since else None
        idle_for = time.time() - state.last_used if state is not None and state.last_used else 0.0
        record.stale = not busy and 0 < self._idle_timeout < idle_for
        return record

    def cause(self, record: KernelRecord, *, patience: float = CAUSE_PATIENCE) -> str:
        """Returns why the process of a record has ended."""
        directory = self._store.directory(record.kernel_id)
        return engine_named(record.engine).cause(record, directory, patience=patience)

    def has_process(self, record: KernelRecord) -> bool:
        """Tells whether the process of a record lives, even if it is unreachable."""
        return engine_named(record.engine).is_alive(record)

    def may_be_held(self, record: KernelRecord) -> bool:
        """Tells whether a thread may hold a kernel that reports itself as idle, and keep it from reporting more."""
        return record.status == "idle" and engine_named(record.engine).may_be_held(record)

    def is_unreachable(self, record: KernelRecord) -> bool:
        """Tells whether clients can no longer reach the kernel of a record, even if its process lives."""
        directory = self._store.directory(record.kernel_id)
        return is_rewritten(record) or bool(engine_named(record.engine).find_obstacle(directory))

    def claim_report(self, record: KernelRecord) -> bool:
        """Notes that the caller reports a death; False if it was already reported, or there is none."""
        return engine_named(record.engine).claim_report(record, self._store.directory(record.kernel_id))

    def was_reported(self, record: KernelRecord) -> bool:
        """Tells whether a death has been reported."""
        return engine_named(record.engine).was_reported(record, self._store.directory(record.kernel_id))

    def require_same_place(self, record: KernelRecord) -> None:
        """Raises StoreFailed if a live kernel is not found because its directory was moved, or we use another."""
        kept_in = os.path.dirname(os.path.dirname(record.connection_file))
        if kept_in != self._store.runtime_dir:
            raise StoreFailed(
                f"kernel {record.name!r} lives (pid {record.pid}), but its files are in {kept_in!r}, and this process "
                f"uses {self._store.runtime_dir!r}; set KERNELBOX_HOME as it was when the kernel was opened"
            )
        if not os.path.isdir(kept_in):
            raise StoreFailed(
                f"kernel {record.name!r} lives (pid {record.pid}), but {kept_in!r} has been moved or removed; set "
                "KERNELBOX_HOME to where it is now, and use the kernel by its name"
            )


def _is_held(state: KernelState) -> bool:
    """Tells whether something that a cell left behind keeps a kernel busy between cells."""
    return bool(state.busy_since) and time.time() - state.busy_since > _LONGEST_STEP


def died_with_owner(record: KernelRecord) -> bool:
    """Tells whether a kernel died with its owner; one that is being started has not."""
    if record.status != "dead" or record.owner is None or is_rewritten(record):
        return False
    return not record.owner.alive


def describe_loss(record: KernelRecord) -> str:
    """Returns what is lost with a kernel's process."""
    count = record.attempt_count
    lost = f"the variables of {count} execution{'s' if count > 1 else ''}" if count else "nothing: no cell had run"
    return f"{lost}; it had died: {record.death}" if record.status == "dead" else lost
