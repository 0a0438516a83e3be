"""How kernels end, start again and are found dead; what belongs to whom; who is never signalled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import Running, eventually, is_running, parent_of, run, value, wait_for_end
from tests.support.store import kernel_directories, pid_of, read_registry, rewrite_record, run_python, start_python

from kernelbox import (
    InvalidInput,
    KernelBoxConfig,
    KernelExists,
    KernelNotFound,
    KernelRecord,
    StartFailed,
    create,
    destroy,
    execute,
    get_or_create,
    interrupt,
    list_kernels,
    restart,
    status,
    wipe,
)
from kernelbox.api._configured import kernels

WRITE_AND_WAIT = "import time\nprint('running', flush=True)\nwhile True: time.sleep(0.01)"

START_CHILDREN = """
import subprocess
[subprocess.Popen(["sleep", "1000"], start_new_session=flag).pid for flag in (True, False)]
"""


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process that has nothing to do with kernels."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)  # as a daemon or somebody's shell is
    yield process
    process.kill()
    process.wait()


# -- destroy -----------------------------------------------------------------------------------------------------


def test_destroy_ends_the_process_and_removes_its_files(home: Path, kernel: KernelRecord) -> None:
    assert destroy(kernel) is True
    assert not is_running(pid_of(kernel))
    assert kernel_directories(home) == []
    assert read_registry(home) == {}


def test_destroying_twice_says_that_there_was_nothing_left(kernel: KernelRecord) -> None:
    assert destroy(kernel.name) is True
    assert destroy(kernel.name) is False
    assert destroy(kernel) is False


def test_a_call_that_waits_for_a_destroyed_kernel_is_told_so(kernel: KernelRecord) -> None:
    cell = Running(kernel, WRITE_AND_WAIT).wait_for_output()
    assert destroy(kernel)
    result = cell.result()
    assert result.error is not None
    assert result.error.ename == "KernelDied"
    assert result.error.evalue.startswith("destroyed")
    assert (result.state, result.ending) == ("lost", "died")


def test_a_kernel_that_another_process_destroys_is_reported_as_destroyed(kernel: KernelRecord) -> None:
    cell = Running(kernel, WRITE_AND_WAIT).wait_for_output()
    run_python("import kernelbox, sys; assert kernelbox.destroy(sys.argv[1])", kernel.name)
    error = cell.result().error
    assert error is not None
    assert error.evalue.startswith("destroyed")


def test_destroy_ends_children_too_even_those_in_their_own_session(kernel: KernelRecord) -> None:
    children = json.loads(value(kernel, START_CHILDREN))
    assert destroy(kernel)
    assert not any(map(is_running, children))


def test_destroy_ends_children_when_the_template_is_gone(own_home: Path) -> None:
    kernel = get_or_create("orphan")
    children = json.loads(value(kernel, START_CHILDREN))
    template = parent_of(pid_of(kernel))
    os.kill(template, signal.SIGKILL)
    wait_for_end(template)
    assert execute(kernel, "1 + 1").return_value == "2"
    assert destroy(kernel)
    eventually(lambda: not any(map(is_running, [pid_of(kernel), *children])))


def test_destroy_ends_a_kernel_that_is_stopped(kernel: KernelRecord) -> None:
    os.kill(pid_of(kernel), signal.SIGSTOP)
    assert destroy(kernel)
    assert not is_running(pid_of(kernel))


def test_a_destroyed_record_stays_dead_and_its_name_can_be_used_again(home: Path, kernel: KernelRecord) -> None:
    destroy(kernel)
    result = execute(kernel, "1 + 1")
    assert (result.status, result.ending) == ("error", "never ran")
    assert result.error is not None
    assert "destroyed" in result.error.evalue
    assert read_registry(home) == {}, "executing must not resurrect it"
    assert execute(kernel.name, "1 + 1").return_value == "2"
    assert not execute(kernel, "1 + 1").ok
    assert status(kernel.name).kernel_id != kernel.kernel_id


# -- restart -----------------------------------------------------------------------------------------------------


def test_restart_keeps_what_the_kernel_is_and_loses_what_it_holds(home: Path, tmp_path: Path) -> None:
    before = get_or_create("again", cwd=str(tmp_path), tags={"a": "b"}, session_name="other")
    run(before, "x = 1; import os; os.chdir('/'); os.environ['KEPT'] = 'no'")
    after = restart("again")
    for field in ("kernel_id", "name", "session_name", "created_at", "cwd", "tags", "kernel_type", "lifetime"):
        assert getattr(after, field) == getattr(before, field), field
    assert after.pid != before.pid
    assert after.lost == "the variables of 1 execution"
    assert value("again", "__import__('os').getcwd()") == repr(str(tmp_path))
    error = execute("again", "x").error
    assert error is not None
    assert error.ename == "NameError"
    assert not is_running(pid_of(before))
    assert read_registry(home)[before.kernel_id]["pid"] == after.pid


def test_a_call_that_waits_for_a_restarted_kernel_is_told_so(kernel: KernelRecord) -> None:
    cell = Running(kernel, WRITE_AND_WAIT).wait_for_output()
    restart(kernel)
    error = cell.result().error
    assert error is not None
    assert error.ename == "KernelDied"
    assert error.evalue.startswith("restarted")
    assert execute(kernel, "1 + 1").return_value == "2"


def test_restart_brings_a_dead_kernel_back_and_says_how_it_had_died(kernel: KernelRecord) -> None:
    os.kill(pid_of(kernel), signal.SIGKILL)
    wait_for_end(pid_of(kernel))
    after = restart(kernel)
    assert after.lost is not None
    assert "killed by SIGKILL" in after.lost
    assert execute(kernel.name, "1 + 1").return_value == "2"


def test_restart_waits_for_a_kernel_that_is_being_started(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv(
        "KERNELBOX_STARTUP_CODE", f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    )
    records: dict[str, KernelRecord] = {}
    opener = threading.Thread(target=lambda: records.update(opened=get_or_create("slow")))
    opener.start()
    eventually(lambda: [record.status for record in list_kernels()] == ["unknown"])
    restarter = threading.Thread(target=lambda: records.update(restarted=restart("slow")))
    restarter.start()
    gate.touch()
    opener.join()
    restarter.join()
    assert records["restarted"].kernel_id == records["opened"].kernel_id
    assert execute("slow", "1 + 1").return_value == "2"


def test_a_kernel_that_is_being_started_is_waited_for_by_others(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    waiting = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nready = 7"
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", waiting)
    opener = threading.Thread(target=get_or_create, args=("slow",))
    opener.start()
    eventually(lambda: [record.status for record in list_kernels()] == ["unknown"])
    cell = Running("slow", "ready")
    gate.touch()
    opener.join()
    assert cell.result().return_value == "7"
    assert len(list_kernels()) == 1


@pytest.mark.parametrize("use", [restart, status, interrupt])
def test_an_unknown_name_is_not_found(home: Path, use: Any) -> None:
    with pytest.raises(KernelNotFound, match="there is no kernel 'nobody'"):
        use("nobody")
    assert destroy("nobody") is False


# -- opening -----------------------------------------------------------------------------------------------------


def test_create_refuses_a_name_that_is_taken(kernel: KernelRecord) -> None:
    with pytest.raises(KernelExists, match="is running already"):
        create(kernel.name)


def test_create_takes_the_name_of_a_dead_kernel(kernel: KernelRecord) -> None:
    os.kill(pid_of(kernel), signal.SIGKILL)
    wait_for_end(pid_of(kernel))
    fresh = create(kernel.name)
    assert fresh.kernel_id != kernel.kernel_id
    # On a machine where others run out of memory this one may have, too.
    assert (fresh.lost or "").removesuffix(", probably out of memory") == (
        "the kernel that had this name before: killed by SIGKILL"
    )


def test_a_session_name_leads_to_the_kernel_and_cannot_be_taken_by_another(home: Path) -> None:
    record = create("a", session_name="s")
    assert get_or_create("s").kernel_id == record.kernel_id
    with pytest.raises(KernelExists):
        create("b", session_name="s")
    with pytest.raises(KernelExists):
        create("s")
    assert destroy("s")
    assert list_kernels() == []


@pytest.mark.parametrize(
    "options",
    [
        {"env": {"A=B": "c"}},
        {"env": {"A": "\0"}},
        {"env": {"A": 1}},
        {"cwd": 7},
        {"cwd": "/no/such/directory"},
        {"tags": {"a": 1}},
        {"tags": "a"},
        {"lifetime": "long"},
        {"session_name": "\n"},
    ],
)
def test_options_that_make_no_sense_are_refused_and_leave_nothing(home: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        get_or_create("odd", **options)
    assert list_kernels() == []


def test_startup_code_runs_in_each_new_kernel_and_after_a_restart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "import math\nanswer = 42")
    assert value("prepared", "answer, math.floor(1.5)") == "(42, 1)"
    restart("prepared")
    assert value("prepared", "answer") == "42"


def test_startup_code_that_fails_fails_the_opening_with_its_traceback(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "x = 1\n1 / 0")
    with pytest.raises(StartFailed, match=r"(?s)KERNELBOX_STARTUP_CODE failed.*1 / 0.*ZeroDivisionError"):
        get_or_create("broken")
    assert list_kernels() == []
    assert kernel_directories(home) == []
    assert read_registry(home) == {}


def test_startup_code_that_fails_in_a_restart_leaves_a_dead_kernel_that_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_or_create("good")
    monkeypatch.setenv("KERNELBOX_STARTUP_CODE", "1 / 0")
    with pytest.raises(StartFailed):
        restart("good")
    record = status("good")
    assert (record.status, record.death) == ("dead", "its start-up code failed")


# -- death -------------------------------------------------------------------------------------------------------


def test_a_death_is_told_once_and_then_the_name_gets_a_fresh_kernel(kernel: KernelRecord) -> None:
    os.kill(pid_of(kernel), signal.SIGKILL)
    wait_for_end(pid_of(kernel))
    told = execute(kernel.name, "1 + 1")
    assert told.error is not None
    assert told.error.ename == "KernelDied"
    assert "killed by SIGKILL" in told.error.evalue
    assert execute(kernel.name, "1 + 1").return_value == "2"
    assert status(kernel.name).kernel_id != kernel.kernel_id
    assert status(kernel.name).lost is None, "it has been told already"


def test_a_death_that_a_waiting_call_saw_is_not_told_again(kernel: KernelRecord) -> None:
    cell = Running(kernel.name, WRITE_AND_WAIT).wait_for_output()
    os.kill(pid_of(kernel), signal.SIGKILL)
    error = cell.result().error
    assert error is not None
    assert "killed by SIGKILL" in error.evalue
    assert execute(kernel.name, "1 + 1").return_value == "2"


def test_a_record_and_an_id_stay_dead_until_somebody_asks_for_a_kernel(kernel: KernelRecord) -> None:
    os.kill(pid_of(kernel), signal.SIGKILL)
    wait_for_end(pid_of(kernel))
    for _ in range(2):
        for key in (kernel, kernel.kernel_id):
            error = execute(key, "1 + 1").error
            assert error is not None
            assert "killed by SIGKILL" in error.evalue
    assert execute(get_or_create(kernel.name), "1 + 1").return_value == "2"


def test_a_kernel_that_ended_by_itself_says_why(kernel: KernelRecord) -> None:
    execute(kernel, "exit()")
    wait_for_end(pid_of(kernel))
    assert status(kernel.name).death == "the cell called exit()"


def test_asking_for_the_status_of_a_dead_kernel_does_not_count_as_telling(kernel: KernelRecord) -> None:
    os.kill(pid_of(kernel), signal.SIGKILL)
    wait_for_end(pid_of(kernel))
    cause = status(kernel).death or ""
    assert cause.startswith("killed by SIGKILL")  # other tests use up memory meanwhile
    assert [record.death for record in list_kernels()] == [cause]
    assert not execute(kernel.name, "1 + 1").ok


# -- pids --------------------------------------------------------------------------------------------------------


def start_time_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


@pytest.mark.parametrize("end", [destroy, restart, wipe, interrupt, get_or_create, execute])
def test_a_stale_record_whose_pid_is_somebody_elses_is_never_signalled(
    kernel: KernelRecord, bystander: subprocess.Popen[bytes], end: Any
) -> None:
    os.kill(pid_of(kernel), signal.SIGKILL)
    wait_for_end(pid_of(kernel))
    rewrite_record(Path(kernel.connection_file), pid=bystander.pid, start_time=start_time_of(bystander.pid) - 1)
    assert status(kernel.name).status == "dead"
    match end.__name__:
        case "wipe":
            assert kernel.kernel_id in wipe()
        case "execute":
            assert not execute(kernel.name, "1").ok
        case _:
            end(kernel.name)
    assert bystander.poll() is None
    assert is_running(bystander.pid)


def test_after_a_reboot_no_process_is_taken_for_a_kernel(
    kernel: KernelRecord, bystander: subprocess.Popen[bytes]
) -> None:
    destroyed_pid = pid_of(kernel)
    rewrite_record(
        Path(kernel.connection_file), pid=bystander.pid, start_time=start_time_of(bystander.pid), boot_id="another boot"
    )
    record = status(kernel.name)
    assert (record.status, record.death) == ("dead", "the machine was restarted since")
    assert "the machine was restarted" in execute(kernel.name, "1").text
    assert execute(kernel.name, "1 + 1").return_value == "2"
    assert is_running(bystander.pid)
    wait_for_end(destroyed_pid)  # it has lost its directory, and its keeper ends it


# -- lifetime ----------------------------------------------------------------------------------------------------

_OWNER = """
import sys
from kernelbox import get_or_create, execute
record = get_or_create(sys.argv[1], lifetime=sys.argv[2])
print(record.pid, flush=True)
sys.stdin.read()
"""


def test_a_kernel_of_a_process_dies_with_it_even_by_sigkill(home: Path) -> None:
    with start_python(_OWNER, "owned", "process") as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert status("owned").owner_pid == owner.pid
        owner.kill()
        owner.wait()
        wait_for_end(pid)
    assert status("owned").status == "dead"


def test_a_kernel_of_a_process_still_belongs_to_it_after_another_restarts_it(home: Path) -> None:
    with start_python(_OWNER, "owned", "process") as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        pid = pid_of(restart("owned"))
        assert is_running(pid)
        owner.kill()
        owner.wait()
        wait_for_end(pid)
    with pytest.raises(StartFailed, match="which has ended"):
        restart("owned")


def test_a_kernel_outlives_the_process_that_opened_it_by_default(home: Path) -> None:
    with start_python(_OWNER, "shared", "kernel") as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
    assert pid_of(status("shared")) == pid
    assert execute("shared", "1 + 1").return_value == "2"


_MEMORY = """
from kernelbox import execute, get_or_create, list_kernels
import os
execute("private", "x = 1")
print(get_or_create("private").pid, os.path.dirname(os.path.dirname(get_or_create("private").connection_file)))
assert execute("private", "x").return_value == "1"
assert [record.name for record in list_kernels()] == ["private"]
"""


def test_the_memory_store_is_seen_by_its_own_process_only_and_ends_with_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setenv("KERNELBOX_STORE_BACKEND", "memory")
        pid, directory = run_python(_MEMORY).stdout.split()
    wait_for_end(int(pid))
    assert list_kernels() == []
    assert not (home / "registry.json").exists() or read_registry(home) == {}
    eventually(lambda: not Path(directory).exists())


def test_what_a_killed_process_left_of_a_memory_store_is_removed_by_the_next(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_STORE_BACKEND", "memory")
    with start_python(_OWNER, "private", "kernel") as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        [left] = Path(tempfile.gettempdir()).glob(f"kernelbox-{owner.pid}-*")
        owner.kill()
        owner.wait()
        wait_for_end(pid)
    assert left.exists()
    run_python(_MEMORY)
    assert not left.exists()


# -- culling -----------------------------------------------------------------------------------------------------


def test_an_idle_kernel_is_shown_as_stale_and_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.01")
    get_or_create("idle")
    eventually(lambda: status("idle").stale)
    assert value("idle", "1 + 1") == "2"
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0")
    assert not status("idle").stale


def test_a_culled_kernel_says_so_when_its_name_is_next_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CULL_IDLE", "1")
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.1")
    wait_for_end(pid_of(get_or_create("culled")))
    told = execute("culled", "1 + 1")
    assert told.error is not None
    assert "ended after 0.1 s without work, as KERNELBOX_CULL_IDLE asks" in told.error.evalue
    monkeypatch.delenv("KERNELBOX_CULL_IDLE")
    assert value("culled", "1 + 1") == "2"


def test_a_busy_kernel_is_not_culled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CULL_IDLE", "1")
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.3")
    assert value("busy", "__import__('time').sleep(0.9) or 'done'") == "'done'"


def test_wipe_stale_ends_idle_kernels_and_leaves_busy_ones(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.01")
    idle, busy = get_or_create("idle"), get_or_create("busy")
    cell = Running(busy, WRITE_AND_WAIT).wait_for_output()
    eventually(lambda: status("idle").stale)
    assert wipe(stale=True) == [idle.kernel_id]
    assert status("busy").status == "running"
    assert "ended after 0.01 s without work" in execute("idle", "1").text
    assert interrupt(busy)
    assert cell.result().ending == "interrupted"


def test_the_culler_leaves_a_kernel_alone_that_has_just_become_busy(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "0.01")
    record = get_or_create("raced")
    eventually(lambda: status("raced").stale)
    here = kernels()
    assert here.kernel(record).ask("leave", {"unused_for": 1000.0}) == {"left": False}, "the kernel itself decides"
    assert value("raced", "1 + 1") == "2"


# -- wipe --------------------------------------------------------------------------------------------------------


def test_wipe_destroys_every_kernel_and_ends_the_templates(own_home: Path) -> None:
    records = [get_or_create(f"k{number}") for number in range(3)]
    cell = Running(records[0], WRITE_AND_WAIT).wait_for_output()
    template = parent_of(pid_of(records[0]))
    assert sorted(wipe()) == sorted(record.kernel_id for record in records)
    assert cell.result().text.endswith("starts a fresh one") or "destroyed" in cell.result().text
    assert not any(is_running(pid_of(record)) for record in records)
    wait_for_end(template)
    assert sorted(path.name for path in (own_home / "runtime").iterdir()) == ["locks", "names"]
    assert list_kernels() == []


def test_wipe_of_nothing_destroys_nothing(home: Path) -> None:
    assert wipe() == []


# -- listing -----------------------------------------------------------------------------------------------------


def test_the_list_shows_what_each_kernel_is_doing(home: Path) -> None:
    idle, busy, dead = (get_or_create(name) for name in ("idle", "busy", "dead"))
    cell = Running(busy, WRITE_AND_WAIT).wait_for_output()
    os.kill(pid_of(dead), signal.SIGKILL)
    wait_for_end(pid_of(dead))
    shown = {record.name: record for record in list_kernels()}
    assert list(shown) == ["idle", "busy", "dead"], "oldest first"
    assert [record.status for record in shown.values()] == ["idle", "running", "dead"]
    assert shown["busy"].busy_since is not None
    assert shown["busy"].busy_since >= busy.created_at
    assert str(shown["dead"].death).startswith("killed by SIGKILL")  # other tests use up memory meanwhile
    assert shown["idle"].pid == idle.pid
    interrupt(busy)
    cell.result()


def test_a_get_or_create_during_a_long_cell_returns_the_busy_kernel(kernel: KernelRecord) -> None:
    cell = Running(kernel, WRITE_AND_WAIT).wait_for_output()
    assert get_or_create(kernel.name).pid == kernel.pid
    assert interrupt(kernel)
    assert cell.result().ending == "interrupted"
    assert interrupt(kernel) is False, "there is nothing to interrupt any more"


def test_records_survive_a_round_trip_and_ignore_what_they_do_not_know(kernel: KernelRecord) -> None:
    data = kernel.to_dict()
    assert KernelRecord.from_dict({**data, "colour": "red"}) == kernel
    assert json.loads(json.dumps(data)) == data
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert KernelRecord.from_dict({**data, "created_at": hour_ago.isoformat()}).age_seconds >= 3600


def test_a_setting_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_KERNEL_IDLE_TIMEOUT", "soon")
    with pytest.raises(InvalidInput, match="KERNELBOX_KERNEL_IDLE_TIMEOUT"):
        KernelBoxConfig.from_env()


def test_all_kernels_can_be_wiped_by_an_exit_function(home: Path) -> None:
    opening = "import atexit, kernelbox; kernelbox.get_or_create('a'); kernelbox.get_or_create('b')"
    code = f"{opening}; atexit.register(kernelbox.wipe)"
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert list_kernels() == []


def test_a_name_whose_kernel_another_process_has_replaced_leads_to_the_new_one(home: Path) -> None:
    assert execute("mine", "x = 1").ok
    replaced = run_python("from kernelbox import *; destroy('mine'); print(execute('mine', 'x = 2; x').return_value)")
    assert replaced.stdout.split() == ["2"], replaced.stderr
    assert execute("mine", "x").return_value == "2"


def test_a_name_whose_kernel_another_process_has_restarted_leads_to_the_new_process(home: Path) -> None:
    assert execute("mine", "x = 1").ok
    restarted = run_python("from kernelbox import *; print(restart('mine').pid)")
    assert execute("mine", "import os; os.getpid(), 'x' in globals()").return_value == (
        f"({restarted.stdout.strip()}, False)"
    )


def test_a_cell_by_name_opens_no_file_while_a_connection_to_its_kernel_waits(home: Path) -> None:
    watched = run_python(
        "import sys, kernelbox\n"
        "kernelbox.execute('mine', '1')\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(args[0]) if event == 'open' else None)\n"
        "result = kernelbox.execute('mine', '1+1')\n"
        "print(result.return_value, opened)\n"
    )
    assert watched.stdout.strip() == "2 []", watched.stderr
