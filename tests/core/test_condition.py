"""What has become of a kernel, by what its process, its files and its state file say."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import parent_of, run, stopped, wait_for_end

from kernelbox import KernelRecord, StoreFailed, destroy, get_or_create
from kernelbox.api._configured import kernels
from kernelbox.core._kernel_condition import Condition, describe_loss, died_with_owner
from kernelbox.host.process._process import boot_id, read_start_time
from kernelbox.host.store._record import format_time
from kernelbox.host.store._state_file import write_state
from kernelbox.wire import _kernel_state as _state


def condition(idle_timeout: float = 0.0) -> Condition:
    return Condition(kernels().store, idle_timeout)


@pytest.fixture
def kernel(home: Path) -> KernelRecord:
    return get_or_create("condition").record


def refreshed(kernel: KernelRecord, idle_timeout: float = 0.0, **fields: Any) -> KernelRecord:
    """Returns a copy of a record as it is now."""
    return condition(idle_timeout).refresh(replace(kernel, **fields))


def say(kernel: KernelRecord, activity: int, *, busy: float = 0.0, idle: float | None = None, count: int = 3) -> None:
    """Has the state file say what the kernel does, for how many seconds, and since when it is idle."""
    run(kernel, "pass")  # from then on it writes nothing by itself
    now = time.time()
    busy_since, last_used = (now - busy if busy else 0.0), (0.0 if idle is None else now - idle)
    data = _state.HEADER.pack(_state.MAGIC, activity, count, busy_since, last_used, 0, b"", b"")
    write_state(kernels().store.directory(kernel.kernel_id), data)


def directory_of(kernel: KernelRecord) -> Path:
    return Path(kernel.connection_file).parent


def kill(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)
    wait_for_end(kernel.pid)


def test_a_live_kernel_is_what_its_state_file_says(kernel: KernelRecord) -> None:
    run(kernel, "x = 1")
    run(kernel, "x = 2")
    now = refreshed(kernel, last_used_at="2000-01-01T00:00:00+00:00")
    assert (now.status, now.busy_since, now.stale, now.death) == ("idle", None, False, None)
    assert now.attempt_count == 2
    assert now.last_used_at > "2020"
    say(kernel, _state.BUSY, busy=1.0, idle=100.0, count=7)
    now = refreshed(kernel, idle_timeout=50.0)
    assert (now.status, now.stale, now.attempt_count) == ("running", False, 7)
    assert now.busy_since is not None
    assert format_time(time.time() - 60) < now.busy_since < format_time(time.time())


def test_a_kernel_that_nobody_has_used_keeps_when_it_was_made(kernel: KernelRecord) -> None:
    say(kernel, _state.IDLE)
    assert refreshed(kernel, idle_timeout=0.001, last_used_at="before").last_used_at == "before"
    assert not refreshed(kernel, idle_timeout=0.001).stale
    write_state(kernels().store.directory(kernel.kernel_id), bytes(_state.SIZE))  # as a cell can
    now = refreshed(kernel, idle_timeout=0.001, attempt_count=5, busy_since="then")
    assert (now.status, now.attempt_count, now.stale, now.busy_since) == ("idle", 5, False, None)


@pytest.mark.parametrize(
    ("idle_timeout", "idle", "stale"),
    [(50.0, 100.0, True), (150.0, 100.0, False), (0.0, 100.0, False), (1.0, 100.0, True)],
)
def test_a_kernel_is_stale_when_it_is_idle_for_longer_than_is_allowed(
    kernel: KernelRecord, idle_timeout: float, idle: float, stale: bool
) -> None:
    say(kernel, _state.IDLE, idle=idle)
    now = refreshed(kernel, idle_timeout)
    assert (now.status, now.stale) == ("idle", stale)


@pytest.mark.parametrize(("busy", "status"), [(0.0, "idle"), (0.1, "idle"), (60.0, "running")])
def test_an_idle_kernel_runs_when_what_a_cell_left_behind_does_so_at_a_stretch(
    kernel: KernelRecord, busy: float, status: str
) -> None:
    say(kernel, _state.IDLE, busy=busy, idle=100.0)
    now = refreshed(kernel, idle_timeout=50.0)
    assert (now.status, now.stale, now.busy_since is None) == (status, status == "idle", status == "idle")


def test_a_kernel_whose_process_has_ended_is_dead_by_its_cause(kernel: KernelRecord) -> None:
    kill(kernel)
    dead = refreshed(kernel, busy_since="then", stale=True)
    assert (dead.status, dead.busy_since, dead.stale) == ("dead", None, False)
    assert dead.death is not None
    assert "SIGKILL" in dead.death
    assert refreshed(kernel, death="told before").death == "told before"
    assert condition().cause(kernel) == dead.death


def test_a_kernel_that_no_client_can_reach_is_dead_though_its_process_lives(kernel: KernelRecord) -> None:
    assert not condition().is_unreachable(kernel)
    with stopped(parent_of(kernel.pid or 0)):
        (directory_of(kernel) / "socket").rename(directory_of(kernel) / "moved")
        lost = refreshed(kernel, death="another")
        assert (lost.status, lost.death) == ("dead", "its file 'socket' was deleted")
        assert condition().is_unreachable(kernel)
        assert condition().has_process(kernel)


def test_a_kernel_that_was_destroyed_since_its_record_was_read_is_told_so(kernel: KernelRecord) -> None:
    destroy(kernel)
    assert refreshed(kernel).death == "destroyed"
    assert not condition().has_process(kernel)


def test_a_dead_kernel_whose_directory_is_deleted_is_not_said_to_be_destroyed(kernel: KernelRecord) -> None:
    kill(kernel)
    for name in ("socket", "death"):
        (directory_of(kernel) / name).unlink(missing_ok=True)
    assert refreshed(kernel).death == "its file 'socket' was deleted"


def test_a_start_that_has_not_come_to_an_end_is_waited_for_while_its_name_is_locked(kernel: KernelRecord) -> None:
    kernels().store.save(replace(kernel, status="unknown"))
    with kernels().store.locking(kernel.name):
        assert refreshed(kernel, status="unknown").status == "unknown"
    cut = refreshed(kernel, status="unknown")
    assert (cut.status, cut.death) == ("dead", "its start was cut short")


def test_a_start_that_came_to_an_end_since_the_record_was_read_is_seen(kernel: KernelRecord) -> None:
    now = refreshed(kernel, status="unknown")
    assert (now.status, now.death) == ("idle", None)
    destroy(kernel)
    assert refreshed(kernel, status="unknown").death == "its start was cut short"


def test_only_a_kernel_that_says_to_be_idle_may_be_held_by_a_thread(kernel: KernelRecord) -> None:
    assert not condition().may_be_held(kernel)
    run(kernel, "import threading; e = threading.Event(); threading.Thread(target=e.wait, daemon=True).start()")
    assert condition().may_be_held(kernel)
    assert not condition().may_be_held(replace(kernel, status="running"))


def test_a_death_is_told_by_one(kernel: KernelRecord) -> None:
    kill(kernel)
    assert not condition().was_reported(kernel)
    assert condition().claim_report(kernel) is True
    assert condition().claim_report(kernel) is False
    assert condition().was_reported(kernel)


def test_a_live_kernel_that_is_kept_elsewhere_is_an_error_that_says_where(kernel: KernelRecord, home: Path) -> None:
    condition().require_same_place(kernel)
    other = replace(kernel, connection_file="/elsewhere/runtime/id/record.json")
    with pytest.raises(
        StoreFailed, match=rf"kernel '{kernel.name}' lives \(pid {kernel.pid}\), but its files are in '/elsewh"
    ):
        condition().require_same_place(other)


def test_a_live_kernel_whose_home_was_moved_is_an_error_that_says_so(own_home: Path) -> None:
    runtime = own_home / "runtime"
    record = KernelRecord("id", str(runtime / "id" / "record.json"), "mine", pid=7)
    here = condition()
    shutil.rmtree(runtime, ignore_errors=True)
    with pytest.raises(StoreFailed, match=r"kernel 'mine' lives \(pid 7\), but '.*runtime' has been moved or removed"):
        here.require_same_place(record)


@pytest.mark.parametrize(
    ("fields", "with_owner"),
    [
        ({}, False),
        ({"owner_start_time": 1}, True),
        ({"owner_start_time": 1, "status": "idle"}, False),
        ({"owner_start_time": 1, "status": "unknown"}, False),
        ({"owner_pid": None}, False),
        ({"boot_id": "another"}, True),
        ({"pid": None, "death": "its record was rewritten by another program than kernelbox", "boot_id": ""}, False),
        ({"pid": None, "boot_id": ""}, True),
    ],
)
def test_a_dead_kernel_died_with_its_owner_if_that_is_gone(fields: dict[str, Any], with_owner: bool) -> None:
    owned = KernelRecord(
        *("id", "file", "mine"),
        status="dead",
        pid=os.getpid(),
        boot_id=boot_id(),
        owner_pid=os.getpid(),
        owner_start_time=read_start_time(os.getpid()) or 0,
    )
    assert died_with_owner(replace(owned, **fields)) is with_owner


@pytest.mark.parametrize(
    ("fields", "loss"),
    [
        ({}, "nothing: no cell had run"),
        ({"attempt_count": 1}, "the variables of 1 execution"),
        ({"attempt_count": 2}, "the variables of 2 executions"),
        ({"attempt_count": 2, "death": "x"}, "the variables of 2 executions"),
        ({"attempt_count": 1, "status": "dead", "death": "x"}, "the variables of 1 execution; it had died: x"),
    ],
)
def test_what_ends_with_a_process_is_said(fields: dict[str, Any], loss: str) -> None:
    assert describe_loss(KernelRecord("id", "file", "mine", **fields)) == loss
