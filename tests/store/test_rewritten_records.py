"""Records that another program has rewritten: no process but the kernel's own is signalled, none is left beside a new
one, and a loss is told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import is_running, run, value, wait_for_end
from tests.support.store import DEADLINE, kernel_directories, pid_of, read_registry, remove_tree, run_python

from kernelbox import (
    KernelRecord,
    create,
    destroy,
    execute,
    get_or_create,
    list_kernels,
    restart,
    status,
    wipe,
)
from kernelbox.host.process._process import read_start_time

CAUSE = "its record was rewritten by another program than kernelbox"

Change = Callable[[dict[str, Any], int], dict[str, Any]]

CHANGES: dict[str, Change] = {
    "another process": lambda record, pid: {**record, "pid": pid, "start_time": read_start_time(pid)},
    "another process, and no signature": lambda record, pid: without_signature({**record, "pid": pid}),
    "a dead process": lambda record, pid: {**record, "pid": 2**22 + 1},
    "another start": lambda record, pid: {**record, "start_time": 5},
    "another boot": lambda record, pid: {**record, "boot_id": "b"},
    "no process": lambda record, pid: {**record, "pid": None},
    "another engine": lambda record, pid: {**record, "engine": "jupyter"},
    "a start that goes on": lambda record, pid: {**record, "status": "unknown"},
    "an owner that has ended": lambda record, pid: {**record, "owner_pid": 2**22 + 1},
    "a signature of another type": lambda record, pid: {**record, "pid": pid, "signature": 1},
}

changes = pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))


@pytest.fixture
def innocent() -> Iterator[int]:
    """Starts a process of the user's that is no kernel; nothing may have ended it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        assert process.poll() is None, "a process that is no kernel was ended"


def without_signature(record: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in record.items() if key != "signature"}


def files_of(kernel: KernelRecord) -> list[Path]:
    """Returns the record of a kernel, and the copies of it."""
    directory = Path(kernel.connection_file).parent
    slugs = ["n" + name.encode().hex() for name in kernel.names]
    return [directory / "connection.json", *(directory.parent / "names" / slug for slug in slugs)]


def rewrite(paths: list[Path], change: Change, pid: int) -> None:
    for path in paths:
        path.write_text(json.dumps(change(json.loads(path.read_text()), pid), separators=(",", ":")))


@changes
def test_a_rewritten_record_is_put_back_from_its_copy_and_the_kernel_goes_on(
    change: Change, home: Path, innocent: int
) -> None:
    kernel = get_or_create("mine")
    run(kernel, "x = 42")
    rewrite(files_of(kernel)[:1], change, innocent)
    found = status("mine")
    assert (found.pid, found.start_time, found.engine, found.alive) == (
        kernel.pid,
        kernel.start_time,
        "kernelbox",
        True,
    )
    rewrite(files_of(kernel)[:1], change, innocent)
    assert status(kernel.kernel_id).pid == kernel.pid
    assert value("mine", "x") == "42"
    rewrite(files_of(kernel)[1:], change, innocent)
    assert value("mine", "x") == "42", "the record leads on without its copy"
    assert destroy("mine")
    assert not is_running(pid_of(kernel))


@changes
def test_a_kernel_whose_record_and_copies_are_rewritten_is_told_lost_once_and_ends(
    change: Change, home: Path, innocent: int
) -> None:
    kernel = get_or_create("mine")
    rewrite(files_of(kernel), change, innocent)
    assert [(record.name, record.pid, record.death) for record in list_kernels()] == [("mine", None, CAUSE)]
    told = run_python("import kernelbox; print(kernelbox.execute('mine', '1').text)").stdout
    assert f"is dead: {CAUSE}" in told
    wait_for_end(pid_of(kernel))
    assert value("mine", "1 + 1") == "2"
    assert [record.death for record in list_kernels()] == [None]


@changes
def test_who_opens_a_kernel_in_place_of_one_with_a_rewritten_record_is_told_so(
    change: Change, home: Path, innocent: int
) -> None:
    kernel = get_or_create("mine")
    rewrite(files_of(kernel), change, innocent)
    fresh = get_or_create("mine")
    assert fresh.lost == f"the kernel that had this name before: {CAUSE}"
    wait_for_end(pid_of(kernel))
    assert value("mine", "1 + 1") == "2"


@pytest.mark.parametrize("change", [CHANGES[each] for each in CHANGES if "owner" not in each])
def test_a_kernel_with_a_rewritten_record_can_be_restarted_and_leaves_no_process(
    change: Change, home: Path, innocent: int
) -> None:
    kernel = get_or_create("mine")
    rewrite(files_of(kernel), change, innocent)
    again = restart("mine")
    assert again.kernel_id == kernel.kernel_id
    assert CAUSE in (again.lost or "")
    wait_for_end(pid_of(kernel))
    assert value("mine", "1 + 1") == "2"


@changes
def test_wipe_ends_a_kernel_with_a_rewritten_record_and_no_other_process(
    change: Change, own_home: Path, innocent: int
) -> None:
    kernel = get_or_create("mine")
    rewrite(files_of(kernel), change, innocent)
    assert wipe() == [kernel.kernel_id]
    wait_for_end(pid_of(kernel))


def test_a_rewritten_record_does_not_get_a_kernel_the_environment_of_its_host(
    home: Path, innocent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    kernel = create("mine", env={"GIVEN": "1"})
    rewrite(files_of(kernel), lambda record, pid: {**record, "environment": "caller"}, innocent)
    run_python("import kernelbox; kernelbox.restart('mine')")
    assert value("mine", "'HOST_SECRET' in __import__('os').environ") == "False"


def test_the_record_of_another_kernel_is_not_taken_for_a_kernels_own(own_home: Path) -> None:
    kernel, other = get_or_create("mine"), get_or_create("other")
    for ours, theirs in zip(files_of(kernel), files_of(other), strict=True):
        ours.write_bytes(theirs.read_bytes())
    with pytest.warns(UserWarning, match="it is about another kernel"):
        assert not destroy("mine")
    assert is_running(pid_of(other))
    assert value("other", "1 + 1") == "2"
    with pytest.warns(UserWarning, match="it is about another kernel"):
        assert wipe() == [other.kernel_id]
    wait_for_end(pid_of(kernel))


@pytest.mark.parametrize("warm", ["1", "0"])
def test_a_kernel_whose_record_of_before_a_restart_was_put_back_ends_when_another_takes_its_place(
    warm: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE", warm)
    kernel = get_or_create("mine")
    before = [path.read_bytes() for path in files_of(kernel)]
    hidden = restart("mine")
    for path, data in zip(files_of(kernel), before, strict=True):
        path.write_bytes(data)
    assert not status("mine").alive
    again = restart("mine")
    wait_for_end(pid_of(hidden))
    assert value(again, "1 + 1") == "2"


def test_a_cell_that_rewrites_its_records_harms_no_process_and_its_kernel_ends(home: Path, innocent: int) -> None:
    kernel = get_or_create("mine")
    paths = [str(path) for path in files_of(kernel)]
    code = (
        "import json\n"
        f"for path in {paths!r}:\n"
        f"    record = json.load(open(path)); record['pid'] = {innocent}; record['start_time'] = "
        f"{read_start_time(innocent)}\n"
        "    json.dump(record, open(path, 'w'))"
    )
    assert execute(kernel, code, timeout=DEADLINE).ok
    run_python("import kernelbox; kernelbox.destroy('mine')")
    wait_for_end(pid_of(kernel))


MANY = 1_000


def plant(home: Path, sound: KernelRecord, what: str) -> None:
    """Fills a runtime directory, as a cell can."""
    runtime = home / "runtime"
    for number in range(MANY):
        kernel_id, name = f"{number:032x}", f"w{number}"
        forged = {**sound.to_dict(), "kernel_id": kernel_id, "name": name, "session_name": name}
        if what == "copies":
            (runtime / "names" / ("n" + name.encode().hex())).write_text(json.dumps(forged))
        elif what == "locks":
            (runtime / "locks" / ("n" + name.encode().hex())).touch(0o600)
        else:
            (runtime / kernel_id).mkdir(0o700)
            text = "{}" if what == "damaged records" else json.dumps(forged)
            (runtime / kernel_id / "connection.json").write_text(text)


@pytest.mark.parametrize("what", ["copies", "locks", "records", "damaged records"])
def test_a_runtime_directory_that_a_cell_has_filled_shows_few_kernels_and_is_wiped(what: str, own_home: Path) -> None:
    kernel = get_or_create("mine")
    plant(own_home, kernel, what)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        records = list_kernels()
        assert status("mine").pid == get_or_create("mine").pid == kernel.pid
        assert get_or_create("new").lost is None
    assert records[0].pid == kernel.pid
    assert len(records) == (101 if what == "records" else 1)
    assert len(told) <= 100
    assert len(read_registry(own_home)) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert kernel.kernel_id in wipe()
    assert kernel_directories(own_home) == []
    assert os.listdir(own_home / "runtime" / "locks") == []
    wait_for_end(pid_of(kernel))


def test_a_process_that_a_rewritten_registry_names_is_left_alone(own_home: Path, innocent: int) -> None:
    kernel = get_or_create("mine")
    registry = own_home / "registry.json"
    data = json.loads(registry.read_text())
    data["kernels"][kernel.kernel_id].update(pid=innocent, start_time=read_start_time(innocent))
    registry.write_text(json.dumps(data))
    remove_tree(own_home / "runtime")
    assert not destroy("mine")
    wait_for_end(pid_of(kernel))
