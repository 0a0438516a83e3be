"""Registries that are damaged, disks that are full, read-only or gone, and paths and names of every kind."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.homes import new_home
from tests.support.store import fill, kernel_directories, mounted, read_only, read_registry, remove_tree, run_python

from kernelbox import (
    InvalidInput,
    KernelBoxConfig,
    StoreFailed,
    destroy,
    execute,
    get_or_create,
    list_kernels,
    status,
    wipe,
)
from kernelbox.api._configured import kernels


def write(text: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_text(text)

    return damage


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()  # not even root can read a directory as a file


def write_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00{")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(write(""), id="empty"),
        pytest.param(truncate, id="truncated"),
        pytest.param(write("not JSON"), id="not JSON"),
        pytest.param(write("[]"), id="a list"),
        pytest.param(write('{"version": 99, "kernels": {}}'), id="another version"),
        pytest.param(write('{"version": 1, "kernels": []}'), id="no kernels"),
        pytest.param(write("[" * 100_000), id="too deep"),
        pytest.param(write_bytes, id="not text"),
        pytest.param(make_unreadable, id="unreadable"),
    ],
)
def test_a_damaged_registry_is_set_aside_with_a_warning_and_rebuilt(home: Path, damage: Callable[[Path], None]) -> None:
    first = get_or_create("first")
    registry = home / "registry.json"
    damage(registry)
    with pytest.warns(UserWarning, match=r"set aside as registry.json.damaged-.* and rebuilt"):
        assert [record.name for record in list_kernels()] == ["first"]
    assert set(read_registry(home)) == {first.kernel_id}
    assert len(list(home.glob("registry.json.damaged-*"))) == 1


def test_opening_a_kernel_with_a_damaged_registry_works_and_repairs_it(home: Path) -> None:
    first = get_or_create("first")
    (home / "registry.json").write_text("{")
    assert execute("first", "1 + 1").return_value == "2"
    with pytest.warns(UserWarning, match="set aside"):
        second = get_or_create("second")
    assert set(read_registry(home)) == {first.kernel_id, second.kernel_id}
    assert len(list(home.glob("registry.json.damaged-*"))) == 1


def test_a_lost_registry_is_rebuilt_without_a_word(home: Path) -> None:
    first = get_or_create("first")
    (home / "registry.json").unlink()
    assert [record.name for record in list_kernels()] == ["first"]
    assert set(read_registry(home)) == {first.kernel_id}


_DESTROY_AND_DIE = """
import os
from kernelbox.api._configured import kernels
assert kernels().destroy_record(kernels().get("gone"), "destroyed", publish=False)
os._exit(0)
"""


def test_a_kernel_whose_destroyer_died_before_it_wrote_the_registry_is_not_listed_any_more(home: Path) -> None:
    get_or_create("gone")
    first = get_or_create("first")  # this process has written the registry last
    run_python(_DESTROY_AND_DIE)
    second = get_or_create("second")
    assert set(read_registry(home)) == {first.kernel_id, second.kernel_id}
    assert kernels().store.find_deleted("gone") is None


def test_the_registry_has_the_documented_shape(home: Path) -> None:
    record = get_or_create("first", tags={"owner": "ann"})
    entry = read_registry(home)[record.kernel_id]
    documented = {
        "kernel_id": record.kernel_id,
        "connection_file": record.connection_file,
        "name": "first",
        "session_name": "first",
        "created_at": record.created_at,
        "tags": {"owner": "ann"},
        "pid": record.pid,
        "kernel_type": "python3",
        "cwd": os.getcwd(),
    }
    assert {key: entry[key] for key in documented} == documented
    assert {"last_used_at", "status", "attempt_count", "busy_since", "death"} <= entry.keys()


def test_executing_a_cell_does_not_touch_the_registry(home: Path) -> None:
    get_or_create("first")
    before = (home / "registry.json").stat()
    assert execute("first", "1 + 1").ok
    after = (home / "registry.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert status("first").attempt_count == 1


def test_explicit_paths_beat_the_home(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_REGISTRY_PATH", str(own_home / "a" / "registry.json"))
    monkeypatch.setenv("KERNELBOX_RUNTIME_DIR", str(own_home / "b" / "kernels"))
    record = get_or_create("first")
    assert Path(record.connection_file).is_relative_to(own_home / "b" / "kernels")
    assert (own_home / "a" / "registry.json").is_file()
    wipe()


def test_the_default_home_is_in_the_current_directory_and_ignored_by_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELBOX_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    config = KernelBoxConfig()
    assert config.registry_path == str(tmp_path / ".kernelbox" / "registry.json")
    assert config.runtime_dir == str(tmp_path / ".kernelbox" / "runtime")
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / ".kernelbox"))
    get_or_create("first")
    assert (tmp_path / ".kernelbox" / ".gitignore").read_text().startswith("*\n#")
    wipe()


def test_a_runtime_directory_that_vanishes_is_made_again(own_home: Path) -> None:
    get_or_create("first")
    wipe()
    remove_tree(own_home / "runtime")
    assert list_kernels() == []
    assert execute("first", "1 + 1").return_value == "2"


def test_lost_names_are_found_again_in_the_records(home: Path) -> None:
    first = get_or_create("first")
    shutil.rmtree(home / "runtime" / "names")
    assert status("first").kernel_id == first.kernel_id
    assert get_or_create("second").name == "second"
    assert get_or_create("first").kernel_id == first.kernel_id


def test_files_and_directories_are_private(home: Path) -> None:
    record = get_or_create("first")
    directory = Path(record.connection_file).parent
    for path in (home / "runtime", directory, home / "runtime" / "names"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (home / "registry.json", Path(record.connection_file), directory / "state"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_home_that_cannot_be_a_directory_gives_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "file" / "home"))
    for use in (list_kernels, lambda: get_or_create("first")):
        with pytest.raises(StoreFailed, match=r"Not a directory; set KERNELBOX_HOME"):
            use()


def test_a_read_only_disk_gives_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(tmp_path / "disk", "ro,size=1m,mode=700") as disk:
        monkeypatch.setenv("KERNELBOX_HOME", str(disk / "home"))
        with pytest.raises(StoreFailed, match="the disk is read-only: set KERNELBOX_HOME"):
            get_or_create("first")


def test_a_read_only_home_is_named_and_no_temporary_file_in_it(home: Path) -> None:
    execute("before", "1")
    with read_only(home):
        for call in (lambda: execute("new", "1"), wipe):
            with pytest.raises(StoreFailed, match=rf"cannot write '{home}(/[a-z.]+)*': Read-only file system"):
                call()


def test_kernels_go_on_when_their_disk_becomes_read_only(home: Path) -> None:
    assert execute("first", "1 + 1").return_value == "2"
    with read_only(home):
        assert execute("first", "1 + 1").return_value == "2"
        assert get_or_create("first").status == "idle"
        assert [record.name for record in list_kernels()] == ["first"]
        with pytest.raises(StoreFailed, match="read-only"):
            get_or_create("second")
        with pytest.raises(StoreFailed, match="read-only"):
            destroy("first")
    assert execute("first", "1 + 1").return_value == "2"


def test_a_full_disk_gives_a_clear_error_and_leaves_no_half_made_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_home() as home, mounted(home, "size=256k,mode=700"):
        monkeypatch.setenv("KERNELBOX_HOME", str(home))
        get_or_create("first")
        filler = fill(home)
        with pytest.raises(StoreFailed, match="the disk is full: free some space"):
            get_or_create("second")
        assert execute("first", "1 + 1").return_value == "2"
        assert [record.name for record in list_kernels()] == ["first"]
        filler.unlink()
        assert execute("second", "1 + 1").return_value == "2"
        wipe()
        assert kernel_directories(home) == []


def test_a_kernel_can_be_destroyed_on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_home() as home, mounted(home, "size=256k,mode=700"):
        monkeypatch.setenv("KERNELBOX_HOME", str(home))
        first = get_or_create("first")
        filler = fill(home)
        assert destroy("first")
        assert not Path(f"/proc/{first.pid}").exists()
        assert list_kernels() == []
        filler.unlink()
        wipe()


def test_a_home_with_a_very_long_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["long" * 25] * 4)
    monkeypatch.setenv("KERNELBOX_HOME", str(deep))
    assert execute("first", "1 + 1").return_value == "2"
    assert destroy("first")
    wipe()


def test_a_path_that_the_system_cannot_take_gives_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / ("x" * 300)))
    with pytest.raises(StoreFailed, match="shorter path"):
        get_or_create("first")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/b",
        "..",
        ".",
        "/etc/passwd",
        "-leading",
        "--name",
        "a b",
        "naïve",
        "名前",
        "😀",
        "x" * 1000,
        "ſ" * 500,
    ],
)
def test_any_printable_name_is_a_name_and_never_a_path(home: Path, name: str) -> None:
    record = get_or_create(name)
    assert get_or_create(name).kernel_id == record.kernel_id
    assert status(name).name == name
    assert Path(record.connection_file).is_relative_to(home / "runtime")
    assert destroy(name)
    assert kernel_directories(home) == []


@pytest.mark.parametrize("name", ["", " ", "\n", "a\nb", "a\0b", "\x7f", "\x1b[31m", "x" * 10_000, "\ud800", None, 7])
def test_a_name_that_cannot_be_shown_is_refused(home: Path, name: str) -> None:
    for function in (get_or_create, status, destroy):
        with pytest.raises(InvalidInput):
            function(name)
    with pytest.raises(InvalidInput):
        execute(name, "1")
    assert list_kernels() == []


def test_names_that_look_alike_are_different_kernels(home: Path) -> None:
    latin, cyrillic, composed, decomposed = "a", "\u0430", "\u00e9", "e\u0301"
    ids = {get_or_create(name).kernel_id for name in (latin, cyrillic, composed, decomposed, "A")}
    assert len(ids) == 5


def test_a_record_that_makes_no_sense_is_passed_over_and_wiped(home: Path) -> None:
    get_or_create("first")
    for number, text in enumerate(["", "{}", "[]", '{"kernel_id": 1}', "\xff"]):
        directory = home / "runtime" / f"{number:032x}"
        directory.mkdir(0o700)
        (directory / "connection.json").write_text(text)
        os.utime(directory, (0, 0))
    with pytest.warns(UserWarning, match=r"connection.json' is ignored, because it is not a valid record"):
        assert [record.name for record in list_kernels()] == ["first"]
    with pytest.warns(UserWarning, match="is ignored"):
        wipe()
    assert kernel_directories(home) == []


def test_what_crashes_left_half_made_is_removed_by_the_next_list_once_it_is_old(own_home: Path) -> None:
    get_or_create("kept")
    for name in (f"{'a' * 32}.new", f"{'b' * 32}.gone", f"{'c' * 32}.new"):
        (own_home / "runtime" / name).mkdir()
        (own_home / "runtime" / name / "state").touch()
    for name in (f"{'a' * 32}.new", f"{'b' * 32}.gone"):
        os.utime(own_home / "runtime" / name, (0, 0))
    halves = [own_home / "runtime" / "names" / "n61.1-abcdef.new", own_home / "registry.json.1-abcdef.new"]
    for half in halves:
        half.write_text("{")
        os.utime(half, (0, 0))
    (own_home / "registry.json").unlink()
    assert [record.name for record in list_kernels()] == ["kept"]
    assert not any(half.exists() for half in halves)
    left = sorted(path.name for path in kernel_directories(own_home))
    assert [name for name in left if "." in name] == [f"{'c' * 32}.new"], "one that may still be in the making is left"
