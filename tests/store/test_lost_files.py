"""Files that are deleted, damaged or taken away under a live kernel: there are never two kernels of one name, a loss is
told by its cause, and `wipe` gets every process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cells import is_running, run, value, wait_for_end
from tests.support.store import DEADLINE, as_user, remove_tree, run_python

from kernelbox import (
    KernelRecord,
    StoreFailed,
    create,
    destroy,
    execute,
    get_or_create,
    list_kernels,
    restart,
    status,
    wipe,
)
from kernelbox.api._configured import kernels

Damage = Callable[[Path, Path, Path], object]


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def as_another(name: Path) -> None:
    """Makes a name lead to a kernel that does not have it."""
    other = json.loads((name.parent / ("n" + b"other".hex())).read_text())
    name.write_text(json.dumps({**other, "name": "mine", "session_name": "mine"}))


def as_link(path: Path) -> None:
    path.rename(elsewhere(path))
    path.symlink_to(elsewhere(path))


def as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def elsewhere(path: Path) -> Path:
    return Path(os.environ["KERNELBOX_HOME"]) / f"elsewhere-{path.parent.name}-{path.name}"


HARMLESS: dict[str, Damage] = {
    "the name is deleted": lambda directory, record, name: name.unlink(),
    "the name leads nowhere": lambda directory, record, name: name.write_text(
        record.read_text().replace(directory.name, "0" * 32)
    ),
    "the name leads to another kernel": lambda directory, record, name: as_another(name),
    "the name is garbage": lambda directory, record, name: name.write_text("junk"),
    "the name is empty": lambda directory, record, name: name.write_text(""),
    "the name is a directory": lambda directory, record, name: as_directory(name),
    "all names are deleted": lambda directory, record, name: shutil.rmtree(name.parent),
    "the record is deleted": lambda directory, record, name: record.unlink(),
    "the record is garbage": lambda directory, record, name: record.write_text("{"),
    "the record is about another kernel": lambda directory, record, name: record.write_text(
        record.read_text().replace(directory.name, "0" * 32)
    ),
    "the record is without end": lambda directory, record, name: os.truncate(record, 10**9),
    "the record is a link": lambda directory, record, name: as_link(record),
    "the record cannot be read": lambda directory, record, name: record.chmod(0),
    "the state is deleted": lambda directory, record, name: (directory / "state").unlink(),
}

FATAL: dict[str, Damage] = {
    "the socket is deleted": lambda directory, record, name: (directory / "socket").unlink(),
    "the directory is deleted": lambda directory, record, name: remove_tree(directory),
    "the directory is taken away": lambda directory, record, name: directory.rename(elsewhere(directory)),
    "the directory is open to others": lambda directory, record, name: directory.chmod(0o755),
    "the directory is a file": lambda directory, record, name: as_file(directory),
    "the directory is a link": lambda directory, record, name: as_link(directory),
}


def harm(damage: Damage, home: Path, kernel: KernelRecord) -> None:
    directory = home / "runtime" / kernel.kernel_id
    damage(directory, directory / "connection.json", home / "runtime" / "names" / ("n" + kernel.name.encode().hex()))


@pytest.mark.parametrize("damage", HARMLESS.values(), ids=list(HARMLESS))
def test_a_kernel_whose_record_or_name_is_damaged_is_found_and_goes_on(damage: Damage, home: Path) -> None:
    get_or_create("other")
    kernel = get_or_create("mine")
    run(kernel, "x = 42")
    harm(damage, home, kernel)
    assert get_or_create("mine").pid == kernel.pid
    assert value("mine", "x") == value(kernel.kernel_id, "x") == "42"
    assert sorted(record.name for record in list_kernels()) == ["mine", "other"]
    with pytest.raises(FileExistsError):
        create("mine")
    assert restart("mine").kernel_id == kernel.kernel_id
    assert destroy("mine")
    assert not destroy("mine")
    assert kernel.pid is not None
    assert not is_running(kernel.pid)
    assert get_or_create("mine").kernel_id != kernel.kernel_id, "the name can be used again"


@pytest.mark.parametrize("damage", FATAL.values(), ids=list(FATAL))
def test_a_kernel_that_cannot_be_reached_any_more_is_told_lost_and_replaced(damage: Damage, home: Path) -> None:
    kernel = get_or_create("mine")
    run(kernel, "x = 42")
    harm(damage, home, kernel)
    # Another process, which has no connection that was made before.
    told = run_python("import kernelbox; print(kernelbox.execute('mine', 'x').text)").stdout
    assert "is dead: its " in told
    assert kernel.pid is not None
    assert not is_running(kernel.pid), "it is ended before another takes its name"
    assert execute("mine", "'x' in globals()", timeout=DEADLINE).return_value == "False", "told once"
    assert [record.name for record in list_kernels()] == ["mine"]


@pytest.mark.parametrize("damage", FATAL.values(), ids=list(FATAL))
def test_who_opens_a_kernel_in_place_of_a_lost_one_is_told_so(damage: Damage, home: Path) -> None:
    kernel = get_or_create("mine")
    harm(damage, home, kernel)
    fresh = get_or_create("mine")
    assert kernel.pid is not None
    assert not is_running(kernel.pid)
    assert fresh.pid != kernel.pid
    assert "the kernel that had this name before: its " in (fresh.lost or "")


@pytest.mark.parametrize("damage", FATAL.values(), ids=list(FATAL))
def test_a_lost_kernel_can_be_restarted(damage: Damage, home: Path) -> None:
    kernel = get_or_create("mine")
    harm(damage, home, kernel)
    again = restart("mine")
    assert kernel.pid is not None
    assert not is_running(kernel.pid)
    assert (again.kernel_id, again.status) == (kernel.kernel_id, "idle")
    assert "it had died: its " in (again.lost or "")
    assert value("mine", "1 + 1") == "2"


@pytest.mark.parametrize("damage", FATAL.values(), ids=list(FATAL))
def test_wipe_gets_every_kernel_whatever_became_of_its_files(damage: Damage, own_home: Path) -> None:
    kernels = [get_or_create("mine"), get_or_create("other")]
    harm(damage, own_home, kernels[0])
    assert set(wipe()) == {kernel.kernel_id for kernel in kernels}
    assert not any(is_running(kernel.pid or 0) for kernel in kernels)
    assert not list((own_home / "runtime").glob("template-*"))


def test_wipe_gets_a_kernel_of_which_neither_record_nor_name_are_left(own_home: Path) -> None:
    kernel = get_or_create("mine")
    (own_home / "runtime" / kernel.kernel_id / "connection.json").unlink()
    shutil.rmtree(own_home / "runtime" / "names")
    wipe()
    assert kernel.pid is not None
    assert not is_running(kernel.pid), "its template ends it when its directory is gone"


@pytest.mark.parametrize(
    ("what", "warm"), [("socket", "1"), ("directory", "0"), ("place", "1"), ("runtime", "1"), ("runtime", "0")]
)
def test_a_kernel_ends_soon_after_its_files_although_no_client_looks(
    what: str, warm: str, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_TEMPLATE", warm)
    kernel = get_or_create("mine")
    directory = own_home / "runtime" / kernel.kernel_id
    match what:
        case "socket":
            (directory / "socket").unlink()
        case "directory":
            remove_tree(directory)
        case "place":
            directory.rename(own_home / "elsewhere")
        case _:
            remove_tree(own_home / "runtime")
    assert kernel.pid is not None
    wait_for_end(kernel.pid)
    if what == "socket":
        assert "files were deleted" in (status("mine").death or "") or "was deleted" in (status("mine").death or "")


def test_a_record_that_a_caller_kept_tells_that_its_files_were_deleted(own_home: Path) -> None:
    kernel = get_or_create("mine")
    remove_tree(own_home / "runtime" / kernel.kernel_id)
    (own_home / "runtime" / "names" / ("n" + b"mine".hex())).unlink()
    told = execute(kernel, "1", timeout=DEADLINE)
    assert told.error is not None
    assert "its files were deleted" in told.error.evalue
    assert kernel.pid is not None
    assert not is_running(kernel.pid)


def test_a_live_kernel_is_not_told_dead_when_its_home_is_moved(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = get_or_create("mine")
    moved = own_home.with_name(own_home.name + "-moved")
    own_home.rename(moved)
    try:
        with pytest.raises(StoreFailed, match=r"'mine' lives \(pid \d+\), but .* has been moved or removed"):
            execute(kernel, "1")
        monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "another"))
        with pytest.raises(StoreFailed, match=r"'mine' lives \(pid \d+\), but its files are in .*set KERNELBOX_HOME"):
            execute(kernel, "1")
        monkeypatch.setenv("KERNELBOX_HOME", str(moved))
        assert value("mine", "1 + 1") == "2"
    finally:
        monkeypatch.setenv("KERNELBOX_HOME", str(own_home))
        moved.rename(own_home)
    assert value(kernel, "1 + 1") == "2"


def test_a_directory_that_its_own_user_cannot_open_is_a_lost_kernel() -> None:
    code = """
store, parent = _sync.kernels().store, os.getppid()
now = "2024-02-28T12:00:00.000000+00:00"
facts = {"pid": parent, "start_time": _process.read_start_time(parent), "boot_id": _process.boot_id()}
record = KernelRecord("1" * 32, "connection.json", "mine", now, now, **facts)
with store.locking("mine"):
    store.add(record)
    store.save(record)
directory = f"{store.runtime_dir}/{record.kernel_id}"
open(f"{directory}/socket", "w").close()
print(status("mine").alive)
os.chmod(f"{directory}/connection.json", 0)
print(status("mine").alive)
os.chmod(directory, 0)
print(status("mine").status, status("mine").death)
"""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERNELBOX_HOME", f"{name}/home")
            patch.setenv("KERNELBOX_KEY_FILE", f"{name}/keys/key")
            first, second, third = as_user(4242, code).splitlines()
    assert (first, second) == ("True", "True"), "a record that cannot be read is put back"
    assert third.startswith("dead its directory can no longer be used")


def test_a_kernel_that_is_destroyed_while_it_is_listed_is_told_as_destroyed(home: Path) -> None:
    kernel = get_or_create("mine")
    destroy("mine")
    assert kernels().condition.refresh(kernel).death == "destroyed"


@pytest.fixture
def all_deleted(own_home: Path) -> Iterator[KernelRecord]:
    """A live kernel of which no file is left; its keeper, which would end it in a second, is stopped.

    The client that ends the kernel continues the keeper, which reports the end, has nothing to keep then, and ends.
    """
    kernel = get_or_create("mine", session_name="also")
    run(kernel, "x = 42")
    keeper = int(value(kernel, "__import__('os').getppid()") or 0)
    os.kill(keeper, signal.SIGSTOP)
    try:
        remove_tree(own_home / "runtime")
        yield kernel
        wait_for_end(keeper)
    finally:
        with contextlib.suppress(ProcessLookupError):  # or the test failed, and it would stay
            os.kill(keeper, signal.SIGCONT)


def test_a_name_that_is_used_again_at_once_after_all_files_were_deleted_has_one_process(
    all_deleted: KernelRecord,
) -> None:
    fresh = get_or_create("mine")
    assert all_deleted.pid is not None
    assert not is_running(all_deleted.pid), "it is ended before another takes its name"
    assert "the kernel that had this name before: its directory was deleted" in (fresh.lost or "")
    assert execute("mine", "'x' in globals()", timeout=DEADLINE).return_value == "False"
    assert [record.name for record in list_kernels()] == ["mine"]


def test_a_cell_for_a_name_whose_files_were_all_deleted_is_told_of_the_loss_once(all_deleted: KernelRecord) -> None:
    told = run_python("import kernelbox; print(kernelbox.execute('also', '1').text)").stdout
    assert "is dead: its directory was deleted" in told
    assert all_deleted.pid is not None
    assert not is_running(all_deleted.pid)
    assert value("also", "1 + 1") == "2"


def test_a_kernel_that_was_destroyed_is_no_loss_when_the_files_are_deleted(own_home: Path) -> None:
    get_or_create("mine")
    destroy("mine")
    remove_tree(own_home / "runtime")
    assert get_or_create("mine").lost is None
