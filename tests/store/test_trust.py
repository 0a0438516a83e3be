"""Homes that came from elsewhere, and what other users or a repository can put where we look."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import parent_of, stopped, wait_for_end
from tests.support.command_line import fail, kernelbox
from tests.support.store import (
    as_user,
    in_many_processes,
    kernel_directories,
    mounted,
    read_only,
    rewrite_record,
    run_python,
)

from kernelbox import KernelBoxConfig, StoreFailed, create, destroy, execute, get_or_create, list_kernels, status, wipe
from kernelbox.api._configured import kernels
from kernelbox.host.files._home import Home
from kernelbox.host.files._key import _home_directories, read_key
from kernelbox.tools._servers import Servers, read_parameters

ANOTHER_USER = 12345
FOREIGN = r"was not made by this user's kernelbox on this machine.*neither used nor changed: set"
PRECIOUS = "export PATH\n"

USES: list[Callable[[], object]] = [
    list_kernels,
    lambda: get_or_create("first"),
    lambda: create("first"),
    lambda: execute("first", "1 + 1"),
    lambda: status("first"),
    lambda: destroy("first"),
    wipe,
]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the home that a stranger's repository brings with it, and uses it."""
    home = tmp_path / "clone" / ".kernelbox"
    (home / "runtime").mkdir(0o700, parents=True)
    home.chmod(0o700)
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    return home


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Makes the file and the directory that links in these tests lead to."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "bashrc").write_text(PRECIOUS)
    return tmp_path / "precious"


def snapshot(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Returns everything below a directory that a write, a rename or a chmod would change."""
    found = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        info = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        found[str(path)] = (info.st_mode, info.st_ino, info.st_mtime_ns, data)
    return found


# -- a home that came from elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize("use", USES)
def test_a_home_that_came_with_a_clone_is_neither_used_nor_changed(
    clone: Path, precious: Path, use: Callable[[], object]
) -> None:
    (clone / ".gitignore").write_text("*\n")
    (clone / "registry.json").symlink_to(precious / "bashrc")
    (clone / "runtime" / f"{1:032x}.gone").symlink_to(precious)
    (clone / "runtime" / f"{2:032x}").mkdir()
    (clone / "runtime" / f"{2:032x}" / "connection.json").write_text("{}")
    os.mkfifo(clone / "console_history")
    before = snapshot(clone)
    with pytest.raises(StoreFailed, match=FOREIGN):
        use()
    assert snapshot(clone) == before
    assert (precious / "bashrc").read_text() == PRECIOUS


def test_every_command_says_so_in_a_sentence(clone: Path) -> None:
    before = snapshot(clone)
    uses = (["list"], ["wipe"], ["exec", "--name", "x", "1"], ["logs", "--template"], ["list", "--pretty"])
    for words in (*uses, ["serve", "--port", "0"], ["export", "--name", "x"]):
        assert "was not made by this user's kernelbox" in fail(*words)
    assert snapshot(clone) == before


def forge(seal: Path, ours: bytes) -> None:
    seal.write_bytes(b"0" * 64 + b"\n")


def empty(seal: Path, ours: bytes) -> None:
    seal.touch()


def of_another_home(seal: Path, ours: bytes) -> None:
    seal.write_bytes(ours)


def huge(seal: Path, ours: bytes) -> None:
    seal.write_bytes(ours * 1000)


def link(seal: Path, ours: bytes) -> None:
    seal.with_name("copy").write_bytes(ours)
    seal.symlink_to("copy")


def endless(seal: Path, ours: bytes) -> None:
    seal.symlink_to("/dev/zero")


def fifo(seal: Path, ours: bytes) -> None:
    os.mkfifo(seal)


def directory(seal: Path, ours: bytes) -> None:
    seal.mkdir()


@pytest.mark.parametrize("plant", [forge, empty, of_another_home, huge, link, endless, fifo, directory])
def test_a_seal_that_is_not_ours_does_not_open_a_home(
    clone: Path, home: Path, plant: Callable[[Path, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    get_or_create("first")
    plant(clone / "seal", (home / "seal").read_bytes())
    before = snapshot(clone)
    monkeypatch.setenv("KERNELBOX_HOME", str(clone))
    with pytest.raises(StoreFailed, match=FOREIGN):
        list_kernels()
    assert snapshot(clone) == before


@pytest.mark.parametrize("content", [b"", b"0" * 64 + b"\n", b"of another home"])
def test_a_home_that_came_with_nothing_but_a_half_made_seal_is_refused(
    tmp_path: Path, home: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_or_create("first")
    clone = tmp_path / ".kernelbox"
    clone.mkdir(0o700)
    (clone / "seal.1-abcdef.new").write_bytes((home / "seal").read_bytes() if b"another" in content else content)
    before = snapshot(clone)
    monkeypatch.setenv("KERNELBOX_HOME", str(clone))
    with pytest.raises(StoreFailed, match=FOREIGN):
        get_or_create("second")
    assert snapshot(clone) == before


def test_a_home_that_nobody_goes_on_making_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seal.1-abcdef.new").touch()
    home, sleep, pauses = Home(str(tmp_path)), time.sleep, list[float]()

    def count(seconds: float) -> None:
        pauses.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", count)
    for _ in range(2):
        waited = pauses.copy()
        with pytest.raises(StoreFailed, match="has no seal"):
            home.open()
    assert waited
    assert pauses == waited


def test_a_home_whose_making_was_cut_short_is_made(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get_or_create("first")
    destroy("first")
    wipe()
    (own_home / "seal").rename(own_home / "seal.1-abcdef.new")
    for path in own_home.iterdir():
        if path.name != "seal.1-abcdef.new":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    run_python("import kernelbox; kernelbox.get_or_create('second')")
    assert [record.name for record in list_kernels()] == ["second"]


def test_a_home_that_has_lost_its_seal_says_that_removing_it_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "my kernels"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    list_kernels()
    create("first")
    destroy("first")
    for name in ("seal", ".gitignore", "registry.json"):
        (home / name).unlink(missing_ok=True)
    with pytest.raises(StoreFailed, match=r"has no seal.*remove this one if only kernelbox has used it"):
        list_kernels()
    shutil.rmtree(home)
    create("first")
    destroy("first")
    wipe()


@pytest.mark.parametrize("lost", ["seal", ".gitignore", "everything that is shown", "what is in the seal"])
def test_a_home_that_has_lost_a_file_of_its_seal_stays_ours(own_home: Path, lost: str) -> None:
    kernel = get_or_create("first")
    if lost.startswith("every"):
        with stopped(parent_of(kernel.pid or 0)):  # or it writes of what the kernel died where we remove
            for path in own_home.glob("[!.]*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif lost.startswith("what"):
        (own_home / "seal").write_text("garbage")
    else:
        (own_home / lost).unlink()
    run_python("import kernelbox; kernelbox.get_or_create('second'); kernelbox.wipe()")
    assert kernel.pid is not None
    wait_for_end(kernel.pid)
    assert (own_home / "seal").exists()


def test_a_copy_of_our_home_is_refused_and_the_home_itself_goes_on(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_or_create("first")
    copy = own_home.with_name(own_home.name + "-copy")
    shutil.copytree(
        own_home,
        copy,
        ignore=lambda _, names: [
            name for name in names if name.startswith("template-") or name in ("socket", "keeper")
        ],
    )
    try:
        monkeypatch.setenv("KERNELBOX_HOME", str(copy))
        with pytest.raises(StoreFailed, match=FOREIGN):
            list_kernels()
    finally:
        shutil.rmtree(copy)
    monkeypatch.setenv("KERNELBOX_HOME", str(own_home))
    assert execute("first", "1 + 1").return_value == "2"


def test_a_home_that_is_moved_stays_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "before"))
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    first = get_or_create("first")
    (tmp_path / "before").rename(tmp_path / "after")
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "after"))
    [record] = list_kernels()
    assert (record.kernel_id, record.pid) == (first.kernel_id, first.pid)
    assert record.connection_file == str(tmp_path / "after" / "runtime" / first.kernel_id / "connection.json")
    wipe()


def test_a_home_with_another_users_key_is_refused_by_another_process(own_home: Path, tmp_path: Path) -> None:
    assert list_kernels() == []
    get_or_create("first")
    another = str(tmp_path / "another" / "key")
    read_key(another)
    sentence = fail("list", KERNELBOX_KEY_FILE=another)
    assert f"its seal does not fit the key '{tmp_path}/another/key'" in sentence
    assert kernelbox("list").status == 0


@pytest.mark.parametrize("lost", [[], ["seal"]], ids=["whole", "without the seal"])
@pytest.mark.parametrize("command", [["list"], ["exec", "--name", "first", "1"], ["wipe"], ["doctor"]], ids=" ".join)
def test_where_the_key_of_a_home_is_not_there_none_is_made(
    own_home: Path, tmp_path: Path, command: list[str], lost: list[str]
) -> None:
    list_kernels()
    with Home(str(own_home), os.environ["KERNELBOX_KEY_FILE"]).make():
        for name in lost:
            (own_home / name).unlink()
    done = kernelbox(*command, KERNELBOX_KEY_FILE=str(tmp_path / "nowhere" / "key"))
    assert done.status == 1
    assert lost or f"there is no key at '{tmp_path}/nowhere/key'" in done.stdout
    assert os.listdir(tmp_path) == []


LOOKING = ["list", "status --name a", "destroy --name a", "restart --name a", "logs --name a", "wipe", "tools list"]


@pytest.mark.parametrize("command", [*LOOKING, "tools remove a", "version"])
def test_a_command_that_only_looks_makes_neither_a_home_nor_a_key(tmp_path: Path, command: str) -> None:
    directory = str(tmp_path / "nowhere")
    kernelbox(*command.split(), KERNELBOX_HOME=f"{directory}/home", KERNELBOX_KEY_FILE=f"{directory}/key")
    assert os.listdir(tmp_path) == []


def test_a_tool_server_makes_no_key_where_a_home_has_been_sealed_with_another(own_home: Path, tmp_path: Path) -> None:
    Home(str(own_home), os.environ["KERNELBOX_KEY_FILE"]).make().close()
    config = KernelBoxConfig(home=str(own_home), key_file=str(tmp_path / "key"))
    with pytest.raises(StoreFailed, match="there is no key at"):
        Servers(config).put("a", read_parameters("a", {"command": "true"}), str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_home_whose_contents_are_exchanged_under_a_running_process_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    get_or_create("first")
    wipe()
    for entry in home.iterdir():  # the directory stays the same: its inode is no proof
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (home / "runtime").mkdir(0o700)
    with pytest.raises(StoreFailed, match=FOREIGN):
        list_kernels()


def test_a_home_that_is_exchanged_for_another_directory_is_refused(
    tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    monkeypatch.setenv("KERNELBOX_TEMPLATE", "0")
    get_or_create("first")
    home.rename(tmp_path / "aside")
    clone.rename(home)
    with pytest.raises(StoreFailed, match=FOREIGN):
        execute("second", "1 + 1")
    assert os.listdir(home) == ["runtime"]
    home.rename(clone)
    (tmp_path / "aside").rename(home)
    wipe()


def test_a_missing_home_is_made_sealed_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "a" / "b" / "home"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    assert list_kernels() == []
    assert not (tmp_path / "a").exists(), "looking makes nothing"
    get_or_create("first")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "seal").stat().st_mode) == 0o600
    assert sorted(os.listdir(home)) == [".gitignore", "registry.json", "runtime", "seal"]
    wipe()


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_an_empty_home_is_sealed_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    assert list_kernels() == []
    assert os.listdir(home) == []
    get_or_create("first")
    assert [record.name for record in list_kernels()] == ["first"]
    assert stat.S_IMODE(home.stat().st_mode) == mode
    wipe()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o2770, 0o730])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_home_that_others_can_write_to_is_refused_and_not_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, sealed: bool
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    if sealed:
        get_or_create("first")
        wipe()
    else:
        home.mkdir()
    home.chmod(mode)
    before = snapshot(home)
    for use in USES:
        with pytest.raises(StoreFailed, match=rf"home' is open to other users \(its mode is {mode:o}\)"):
            use()
    assert snapshot(home) == before


@pytest.mark.parametrize("inner", ["runtime", "runtime/names", "runtime/locks"])
def test_a_directory_of_the_home_that_is_opened_to_others_is_refused_and_not_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "home"))
    get_or_create("first")
    wipe()
    opened = tmp_path / "home" / inner
    opened.chmod(0o777)
    with pytest.raises(StoreFailed, match=rf"{inner}' is open to other users"):
        get_or_create("first")
    assert stat.S_IMODE(opened.stat().st_mode) == 0o777
    opened.chmod(0o700)
    wipe()  # the template that was about to start the kernel


def a_link(home: Path) -> None:
    home.with_name("real").mkdir(0o700)
    home.symlink_to(home.with_name("real"))


def a_dangling_link(home: Path) -> None:
    home.symlink_to(home.with_name("missing"))


def a_link_to_itself(home: Path) -> None:
    home.symlink_to(home)


def a_file(home: Path) -> None:
    home.touch()


def a_fifo(home: Path) -> None:
    os.mkfifo(home)


@pytest.mark.parametrize("plant", [a_link, a_dangling_link, a_link_to_itself, a_file, a_fifo])
def test_a_home_that_is_no_directory_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path], None]
) -> None:
    plant(tmp_path / "home")
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "home"))
    before = snapshot(tmp_path)
    for use in USES:
        with pytest.raises(StoreFailed, match=r"home'(:| is a link).*set KERNELBOX_HOME"):
            use()
    assert snapshot(tmp_path) == before


def test_a_home_behind_a_linked_parent_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "link" / "home"))
    assert execute("first", "1 + 1").return_value == "2"
    assert (tmp_path / "real" / "home" / "seal").is_file()
    wipe()


def test_the_root_of_the_file_system_is_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", "/")
    with pytest.raises(StoreFailed, match=r"'/' (was not made|belongs to another user)"):
        get_or_create("first")
    assert not os.path.exists("/seal")
    assert not os.path.exists("/runtime")


def test_an_empty_home_on_a_read_only_disk_gives_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(tmp_path / "disk", "ro,size=1m,mode=700") as disk:
        monkeypatch.setenv("KERNELBOX_HOME", str(disk))
        assert list_kernels() == []
        with pytest.raises(StoreFailed, match="the disk is read-only: set KERNELBOX_HOME"):
            get_or_create("first")


# -- other users -------------------------------------------------------------------------------------------------

_LOOK = """
os.environ.update(KERNELBOX_HOME={home!r}, KERNELBOX_KEY_FILE={key!r})
try:
    list_kernels()
except StoreFailed as exc:
    print(exc)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """Makes a directory that every user can write to."""
    with tempfile.TemporaryDirectory(prefix="kb-") as path:
        os.chmod(path, 0o777)
        yield Path(path)


def test_the_home_of_another_user_is_refused_by_root(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(ANOTHER_USER, f"os.makedirs({str(shared / 'theirs')!r})")
    monkeypatch.setenv("KERNELBOX_HOME", str(shared / "theirs"))
    for use in USES:
        with pytest.raises(StoreFailed, match=r"theirs' belongs to another user \(uid 12345, we are uid 0\)"):
            use()
    assert os.listdir(shared / "theirs") == []


def test_the_home_of_root_is_refused_by_another_user(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = shared / "home"
    home.mkdir(0o755)
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    get_or_create("first")
    said = as_user(ANOTHER_USER, _LOOK.format(home=str(home), key=str(shared / "theirs" / "key")))
    assert "home' belongs to another user (uid 0, we are uid 12345)" in said
    wipe()


def test_a_runtime_directory_that_another_user_made_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(ANOTHER_USER, f"os.makedirs({str(shared / 'theirs')!r}); os.chmod({str(shared / 'theirs')!r}, 0o777)")
    monkeypatch.setenv("KERNELBOX_HOME", str(shared / "ours"))
    monkeypatch.setenv("KERNELBOX_RUNTIME_DIR", str(shared / "theirs"))
    for use in USES:
        with pytest.raises(StoreFailed, match=r"theirs' belongs to another user.*KERNELBOX_RUNTIME_DIR"):
            use()
    assert stat.S_IMODE((shared / "theirs").stat().st_mode) == 0o777


# -- the runtime directory and the registry, where they are elsewhere --------------------------------------------


def test_a_runtime_directory_elsewhere_gets_a_seal_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELBOX_RUNTIME_DIR", str(tmp_path / "elsewhere"))
    assert execute("first", "1 + 1").return_value == "2"
    assert (tmp_path / "elsewhere" / "seal").is_file()
    wipe()
    assert fail("list", KERNELBOX_KEY_FILE=str(tmp_path / "key" / "key"))


def test_a_runtime_directory_elsewhere_that_holds_other_things_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir(0o700)
    (documents / "letter").touch()
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELBOX_RUNTIME_DIR", str(documents))
    for use in USES:
        with pytest.raises(StoreFailed, match=FOREIGN + " KERNELBOX_RUNTIME_DIR"):
            use()
    assert os.listdir(documents) == ["letter"]


def test_a_runtime_directory_elsewhere_must_be_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    monkeypatch.setenv("KERNELBOX_RUNTIME_DIR", str(shared))
    with pytest.raises(StoreFailed, match=r"shared' is open to other users.*KERNELBOX_RUNTIME_DIR"):
        get_or_create("first")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755


def registry_link(path: Path, precious: Path) -> None:
    path.symlink_to(precious / "bashrc")


def registry_dangling(path: Path, precious: Path) -> None:
    path.symlink_to(precious / "missing")


def registry_fifo(path: Path, precious: Path) -> None:
    os.mkfifo(path)


def registry_directory(path: Path, precious: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("plant", [registry_link, registry_dangling, registry_fifo, registry_directory])
def test_a_registry_path_that_leads_to_anything_but_a_file_is_refused(
    home: Path, tmp_path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path, Path], None]
) -> None:
    get_or_create("here")
    destroy("here")
    (tmp_path / "named").mkdir()
    plant(tmp_path / "named" / "registry.json", precious)
    monkeypatch.setenv("KERNELBOX_REGISTRY_PATH", str(tmp_path / "named" / "registry.json"))
    before, kernels_before = snapshot(tmp_path), kernel_directories(home)
    sentence = r"registry.json' is (a link|not a regular file).*KERNELBOX_REGISTRY_PATH"
    with pytest.raises(StoreFailed, match=sentence):
        list_kernels()
    with pytest.raises(StoreFailed, match=sentence):
        get_or_create("first")
    assert snapshot(tmp_path) == before
    assert kernel_directories(home) == kernels_before
    monkeypatch.delenv("KERNELBOX_REGISTRY_PATH")


def test_a_device_named_as_the_registry_stays_where_it_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_REGISTRY_PATH", "/dev/null")
    with pytest.raises(StoreFailed, match="'/dev/null' is not a regular file of yours"):
        get_or_create("first")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    monkeypatch.delenv("KERNELBOX_REGISTRY_PATH")


@pytest.mark.parametrize("plant", [registry_link, registry_dangling, registry_fifo])
def test_what_is_planted_as_the_registry_of_our_own_home_is_set_aside_itself(
    own_home: Path, precious: Path, plant: Callable[[Path, Path], None]
) -> None:
    first = get_or_create("first")
    (own_home / "registry.json").unlink()
    plant(own_home / "registry.json", precious)
    with pytest.warns(UserWarning, match="set aside as registry.json.damaged-"):
        assert [record.kernel_id for record in list_kernels()] == [first.kernel_id]
    assert list(json.loads((own_home / "registry.json").read_text())["kernels"]) == [first.kernel_id]
    assert os.listdir(precious) == ["bashrc"]
    assert (precious / "bashrc").read_text() == PRECIOUS


def test_an_entry_of_the_registry_that_cannot_be_one_is_made_anew(home: Path) -> None:
    first, second = get_or_create("first"), get_or_create("second")
    path = home / "registry.json"
    data = json.loads(path.read_text())
    data["kernels"][second.kernel_id] = 7
    text = json.dumps(data).replace('"tags": {}', '"tags": ' + "[" * 900 + "]" * 900, 1)
    path.write_text(text)
    third = get_or_create("third")
    kernels = json.loads(path.read_text())["kernels"]
    assert {kernel_id: entry["name"] for kernel_id, entry in kernels.items()} == {
        first.kernel_id: "first",
        second.kernel_id: "second",
        third.kernel_id: "third",
    }
    assert kernels[first.kernel_id]["tags"] == {}


# -- what is planted in our own home -----------------------------------------------------------------------------


def test_wiping_empties_nothing_behind_a_link(own_home: Path, precious: Path) -> None:
    first = get_or_create("first")
    runtime = own_home / "runtime"
    for name in (f"{first.kernel_id}.gone", f"{1:032x}.gone", f"{2:032x}", f"{3:032x}.new"):
        (runtime / name).symlink_to(precious)
        os.utime(runtime / name, (0, 0), follow_symlinks=False)
    (runtime / "names" / "n00").symlink_to(precious / "bashrc")
    os.utime(runtime / "names" / "n00", (0, 0), follow_symlinks=False)
    with pytest.warns(UserWarning, match="is a link, which is not followed"):
        wipe()
    assert kernel_directories(own_home) == []
    assert os.listdir(runtime / "names") == []
    assert (precious / "bashrc").read_text() == PRECIOUS


def test_a_name_that_is_planted_as_a_link_is_found_by_the_records_and_replaced(own_home: Path, precious: Path) -> None:
    first = get_or_create("first")
    [index] = (own_home / "runtime" / "names").iterdir()
    index.unlink()
    index.symlink_to(precious / "bashrc")
    assert get_or_create("first").kernel_id == first.kernel_id
    assert destroy("first")
    get_or_create("first")
    assert not index.is_symlink()
    assert (precious / "bashrc").read_text() == PRECIOUS


@pytest.mark.parametrize("kind", ["link", "fifo", "second name"])
def test_a_lock_that_is_planted_is_replaced_by_one_of_ours(own_home: Path, precious: Path, kind: str) -> None:
    get_or_create("first")
    locks = own_home / "runtime" / "locks"
    lock = locks / ("n" + b"second".hex())
    match kind:
        case "link":
            lock.symlink_to(precious / "bashrc")
        case "fifo":
            os.mkfifo(lock)
        case _:
            os.link(precious / "bashrc", lock)
    assert execute("second", "1 + 1").return_value == "2"
    assert os.listdir(locks) == []
    assert (precious / "bashrc").read_text() == PRECIOUS


def deep(record: dict[str, Any]) -> str:
    return '{"tags":' + "[" * 100_000


def deep_and_closed(record: dict[str, Any]) -> str:
    return "[" * 50_000 + "]" * 50_000


def too_large(record: dict[str, Any]) -> str:
    return json.dumps({**record, "unknown": "x" * 1_000_000})


def endless_number(record: dict[str, Any]) -> str:
    return json.dumps(record)[:-1] + ', "pid": ' + "9" * 10_000 + "}"


def changed(**fields: object) -> Callable[[dict[str, Any]], str]:
    return lambda record: json.dumps({**record, **fields})


CRAFTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "deep": deep,
    "deep and closed": deep_and_closed,
    "too large": too_large,
    "endless number": endless_number,
    "another id": changed(kernel_id="0" * 32),
    "an id that is a path": changed(kernel_id="../../../../etc"),
    "a name with an escape": changed(name="\x1b]0;owned\x07"),
    "a name of two lines": changed(name="a\nb"),
    "a name of 10 kB": changed(name="x" * 10_000),
    "no name": changed(name=""),
    "a session name that is none": changed(session_name=["x"]),
    "a negative pid": changed(pid=-1),
    "pid 0": changed(pid=0),
    "a pid that is a text": changed(pid="1"),
    "a pid that is a truth": changed(pid=True),
    "a pid that is a fraction": changed(pid=1.5),
    "an owner that is none": changed(owner_pid=-1),
    "an endless start time": changed(start_time=2**70),
    "a time that is none": changed(created_at="yesterday"),
    "a day that is none": changed(last_used_at="2025-02-30T00:00:00.000000+00:00"),
    "a busy time that is a number": changed(busy_since=5),
    "a status that is none": changed(status="\x1b[31mfine"),
    "an engine that is none": changed(engine="remote"),
    "a lifetime that is none": changed(lifetime="forever"),
    "tags that are a list": changed(tags=[]),
    "tags of numbers": changed(tags={"a": 1}),
    "tags without end": changed(tags={"a": "x" * 20_000}),
    "a directory with NUL": changed(cwd="/\0"),
    "a directory that is none": changed(cwd=None),
    "a count that is a list": changed(attempt_count=[]),
    "a death that is an object": changed(death={}),
    "a loss of 10 kB": changed(lost="x" * 10_000),
    "a boot that is a number": changed(boot_id=7),
    "a stale that is a text": changed(stale="no"),
    "a kernel type with an escape": changed(kernel_type="\x1b"),
    "infinity": changed(attempt_count=float("inf")),
}


@pytest.mark.parametrize("craft", CRAFTED.values(), ids=list(CRAFTED))
def test_a_crafted_record_is_as_if_it_were_not_there(
    home: Path, craft: Callable[[dict[str, Any]], str], capsys: pytest.CaptureFixture[str]
) -> None:
    sound = get_or_create("sound")
    planted = home / "runtime" / f"{1:032x}"
    planted.mkdir(0o700)
    (planted / "connection.json").write_text(craft({**sound.to_dict(), "kernel_id": f"{1:032x}", "name": "planted"}))
    try:
        with pytest.warns(UserWarning, match=rf"{planted}/connection.json' is ignored") as warned:
            assert [record.name for record in list_kernels()] == ["sound"]
        assert all(str(warning.message).isprintable() for warning in warned)
    finally:
        shutil.rmtree(planted)


def test_a_record_of_an_older_version_that_lacks_fields_is_read(home: Path) -> None:
    first = get_or_create("first")
    path = home / "runtime" / first.kernel_id / "connection.json"
    missing = dict.fromkeys(("lost", "stale", "owner_pid", "owner_start_time", "busy_since"))
    rewrite_record(path, **missing, of_tomorrow=[1], created_at="2024-02-29T12:00:00+00:00")
    assert status("first").kernel_id == first.kernel_id


def test_the_longest_record_that_can_be_made_can_be_read(home: Path) -> None:
    record = create(
        "\U0001f600" * 1000, session_name="\U0001f601" * 1000, tags={str(n): "\U0001f602" * 95 for n in range(100)}
    )
    record.lost = "\U0001f603" * 50_000
    kernels().store.save(record)
    found = status(record.name)
    assert (found.tags, found.session_name) == (record.tags, record.session_name)
    assert found.lost is not None
    assert len(found.lost) == 2_000


def test_the_causes_in_a_record_are_escaped_when_it_is_read(home: Path) -> None:
    first = get_or_create("first")
    path = home / "runtime" / first.kernel_id / "connection.json"
    rewrite_record(path, lost="\x1b[31m\u202e" * 100)
    found = status("first")
    assert found.pid == first.pid
    assert str(found.lost).isprintable()


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_a_kernels_directory_that_is_not_private_is_passed_over(home: Path, precious: Path, kind: str) -> None:
    sound = get_or_create("sound")
    planted = home / "runtime" / f"{1:032x}"
    match kind:
        case "link":
            shutil.copytree(
                home / "runtime" / sound.kernel_id, precious / "copy", ignore=lambda *_: ["socket", "keeper"]
            )
            planted.symlink_to(precious / "copy")
        case "open":
            planted.mkdir()
            planted.chmod(0o755)
            (planted / "connection.json").write_text(json.dumps({**sound.to_dict(), "kernel_id": f"{1:032x}"}))
        case _:
            planted.touch()
    if kind == "file":
        assert [record.name for record in list_kernels()] == ["sound"]
    else:
        with pytest.warns(UserWarning, match=r"is a link|is open to other users"):
            assert [record.name for record in list_kernels()] == ["sound"]
    planted.unlink() if kind != "open" else shutil.rmtree(planted)


# -- the key -----------------------------------------------------------------------------------------------------


def test_fifty_processes_that_start_at_once_agree_on_one_key_and_one_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(tmp_path / "a" / "b" / "key"))
    code = "from kernelbox.api._configured import kernels\nwith kernels().store.locking(f'k{number}'): answer = number"
    assert in_many_processes(50, code) == list(range(50))
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["homes", "key"]
    assert sorted(os.listdir(tmp_path / "home")) == [".gitignore", "runtime", "seal"]
    assert list_kernels() == []
    assert stat.S_IMODE((tmp_path / "a" / "b" / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def key_too_short(path: Path) -> None:
    path.write_bytes(b"short")


def key_empty(path: Path) -> None:
    path.touch()


def key_too_long(path: Path) -> None:
    path.write_bytes(bytes(33))


def key_readable(path: Path) -> None:
    path.write_bytes(bytes(32))
    path.chmod(0o644)


def key_link(path: Path) -> None:
    path.with_name("real").write_bytes(bytes(32))
    path.symlink_to("real")


def key_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def key_fifo(path: Path) -> None:
    os.mkfifo(path)


def key_directory(path: Path) -> None:
    path.mkdir()


def key_directory_open(path: Path) -> None:
    path.parent.chmod(0o777)


def key_foreign(path: Path) -> None:
    path.write_bytes(bytes(32))
    try:
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
    except PermissionError:
        pytest.skip("only root can make a file for another user")


@pytest.mark.parametrize(
    "plant",
    [
        key_too_short,
        key_empty,
        key_too_long,
        key_readable,
        key_link,
        key_endless,
        key_fifo,
        key_directory,
        key_directory_open,
        key_foreign,
    ],
)
def test_a_key_that_cannot_be_trusted_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path], None]
) -> None:
    directory = tmp_path / "keys"
    directory.mkdir(0o700)
    if plant not in (key_link, key_endless, key_fifo, key_directory, key_directory_open):
        (directory / "key").touch(0o600)
    plant(directory / "key")
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(directory / "key"))
    before = snapshot(directory)
    with pytest.raises(StoreFailed, match=r"keys(/key)?' (has|is|belongs).*KERNELBOX_KEY_FILE"):
        get_or_create("first")
    assert snapshot(directory) == before


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("keys/below/key", "made"),
        ("open/key", r"'.*/open' is open to other users \(its mode is 777\), so no key is kept there"),
        ("file/key", "cannot keep the key '.*/file/key': Not a directory"),
        ("file/below/key", "cannot keep the key '.*/file/below/key': Not a directory"),
        ("x" * 300 + "/key", "File name too long"),
        ("read only/key", "Read-only file system"),
    ],
)
def test_a_key_file_in_an_odd_place_is_made_or_refused_with_a_sentence_about_it(
    place: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("open", "read only"):
        (tmp_path / name).mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(tmp_path / place))
    if said == "made":
        assert read_key(str(tmp_path / place)).path == str(tmp_path / place)
        return
    with read_only(tmp_path / "read only") if "only" in place else contextlib.nullcontext():
        with pytest.raises(StoreFailed, match=rf"{said}.*; set KERNELBOX_KEY_FILE to another file, in a directory of"):
            get_or_create("first")
        assert not (tmp_path / "home" / "runtime").exists()


def test_the_home_directory_of_the_password_database_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    try:
        recorded = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pytest.skip("this user has no entry in the password database")
    if recorded.stat().st_uid != os.geteuid():
        pytest.skip("this user's home directory is not its own")
    assert _home_directories() == [str(recorded), str(tmp_path)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_home_directory_that_is_not_the_users_own_keeps_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(tmp_path) in _home_directories()
    os.chown(tmp_path, ANOTHER_USER, ANOTHER_USER)
    assert str(tmp_path) not in _home_directories()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_seal_fits_one_user(shared: Path) -> None:
    code = f"""
import os
from kernelbox import StoreFailed
from kernelbox.host.files._home import Home
home = Home({str(shared / "home")!r}, os.environ["KERNELBOX_KEY_FILE"])
home.make().close()
for path in ({str(shared / "home")!r}, {str(shared / "home/seal")!r}):
    os.chown(path, {ANOTHER_USER}, {ANOTHER_USER})
os.seteuid({ANOTHER_USER})  # it has the key in its memory
try:
    home.open()
except StoreFailed as exc:
    print(exc)
"""
    assert "its seal does not fit the key" in run_python(code).stdout


@pytest.mark.parametrize("name", ["home", ".kernelbox"])
def test_a_seal_fits_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("KERNELBOX_HOME", str(tmp_path / name))
    Home(str(tmp_path / name), os.environ["KERNELBOX_KEY_FILE"]).make().close()
    other = tmp_path / "machine-id"
    other.write_text("0123456789abcdef0123456789abcdef\n")
    use = f"{sys.executable} -c 'import kernelbox; print(kernelbox.list_kernels())'"
    script = f"mount --bind {other} /etc/machine-id || exit 99; {use}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 99 or done.stderr.startswith("unshare"):
        pytest.skip(f"the machine cannot be given another id here: {done.stderr.strip()}")
    assert "its seal does not fit the key" in done.stderr
    assert run_python("import kernelbox; print(kernelbox.list_kernels())").stdout == "[]\n"


def test_a_user_that_no_database_knows_keeps_the_key_below_the_home_of_the_environment(shared: Path) -> None:
    code = f"""
os.environ.pop("KERNELBOX_KEY_FILE", None)
os.environ["HOME"] = {str(shared / "home")!r}
os.mkdir(os.environ["HOME"])
from kernelbox.host.files._key import read_key
print(read_key("").path)
"""
    assert as_user(ANOTHER_USER, code) == f"{shared}/home/.local/state/kernelbox/key\n"
    assert stat.S_IMODE((shared / "home/.local/state/kernelbox").stat().st_mode) == 0o700


def test_a_user_without_a_home_directory_keeps_the_key_in_the_temporary_directory(shared: Path) -> None:
    code = f"""
os.environ.pop("KERNELBOX_KEY_FILE", None)
os.environ["HOME"] = "/nonexistent"
tempfile.tempdir = {str(shared)!r}
from kernelbox.host.files._key import read_key
print(read_key("").path)
"""
    assert as_user(ANOTHER_USER, code) == f"{shared}/kernelbox-{ANOTHER_USER}/key\n"
    assert stat.S_IMODE((shared / f"kernelbox-{ANOTHER_USER}").stat().st_mode) == 0o700


def test_a_key_directory_that_another_user_has_taken_in_the_temporary_directory_is_refused(shared: Path) -> None:
    (shared / f"kernelbox-{ANOTHER_USER}").mkdir(0o777)
    code = f"""
os.environ.pop("KERNELBOX_KEY_FILE", None)
os.environ["HOME"] = "/nonexistent"
tempfile.tempdir = {str(shared)!r}
from kernelbox.host.files._key import read_key
try:
    read_key("")
except StoreFailed as exc:
    print(exc)
"""
    assert "belongs to another user" in as_user(ANOTHER_USER, code)
    assert os.listdir(shared / f"kernelbox-{ANOTHER_USER}") == []


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
def test_what_another_user_puts_into_the_temporary_directory_keeps_no_user_from_a_key_at_home(
    shared: Path, mode: int
) -> None:
    taken = shared / f"kernelbox-{ANOTHER_USER}"
    taken.mkdir()
    (taken / "key").write_bytes(b"k" * 32)
    taken.chmod(mode)
    code = f"""
os.environ.pop("KERNELBOX_KEY_FILE", None)
os.environ["HOME"] = {str(shared / "home")!r}
os.mkdir(os.environ["HOME"])
tempfile.tempdir = {str(shared)!r}
from kernelbox.host.files._key import read_key
print(read_key("").path)
"""
    assert as_user(ANOTHER_USER, code) == f"{shared}/home/.local/state/kernelbox/key\n"


def test_processes_that_use_a_home_with_its_own_key_for_the_first_time_do_not_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(home / "key"))
    home.mkdir(0o700)
    (home / "key.1-abcdef.new").write_bytes(b"half of a key")
    assert list_kernels() == [], "a process is about to make the key"
    read_key(str(home / "key"))
    assert list_kernels() == [], "a process has made the key, and is about to seal the home"
    code = "from kernelbox.api._configured import kernels\nwith kernels().store.locking('k'): answer = list_kernels()"
    assert in_many_processes(8, code) == [[]] * 8


def test_a_home_with_its_own_key_is_waited_for_while_a_process_writes_its_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    monkeypatch.setenv("KERNELBOX_KEY_FILE", str(home / "key"))
    with kernels().store.locking("k"):
        seal = (home / "seal").read_bytes()
    for path in home.iterdir():
        if path.name != "key":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (home / "seal.1-abcdef.new").write_bytes(seal[:20])
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(list_kernels)
        with pytest.raises(TimeoutError):
            looking.result(0.05)
        (home / "seal.1-abcdef.new").write_bytes(seal)
        assert looking.result() == []


def test_a_key_on_a_read_only_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys" / "key"
    made = read_key(str(path)).secret
    with read_only(path.parent):
        code = "import sys; from kernelbox.host.files._key import read_key; print(read_key(sys.argv[1]).secret.hex())"
        assert run_python(code, str(path)).stdout.strip() == made.hex()


# -- the memory backend ------------------------------------------------------------------------------------------


def test_sweeping_the_temporary_directory_follows_no_link_and_leaves_others_alone(
    tmp_path: Path, precious: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    (temporary / "kernelbox-999999999-1-link").symlink_to(precious)
    (temporary / "kernelbox-999999999-2-dead" / "runtime").mkdir(parents=True)
    (temporary / "kernelbox-999999999-2-dead" / "link").symlink_to(precious)
    (temporary / f"kernelbox-{'9' * 200}-1-x").mkdir()
    kept = ["kernelbox-999999999-1-link"]
    if os.geteuid() == 0:
        (temporary / "kernelbox-999999999-3-theirs").mkdir()
        os.chown(temporary / "kernelbox-999999999-3-theirs", ANOTHER_USER, ANOTHER_USER)
        kept.append("kernelbox-999999999-3-theirs")
    run_python(
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]; os.environ['KERNELBOX_STORE_BACKEND'] = 'memory'\n"
        "import kernelbox; assert kernelbox.list_kernels() == []",
        str(temporary),
    )
    assert sorted(os.listdir(temporary)) == kept
    assert os.listdir(precious) == ["bashrc"]


# -- a disk as small and a system as far as it goes ----------------------------------------------------------------


def test_a_home_that_vanishes_while_it_is_used_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("KERNELBOX_HOME", str(home))
    get_or_create("first")
    wipe()
    shutil.rmtree(home)
    assert list_kernels() == []
    assert execute("first", "1 + 1").return_value == "2"
    assert (home / "seal").is_file()
    wipe()


def test_verifying_a_home_does_not_load_openssl(home: Path) -> None:
    get_or_create("first")
    code = "import sys, kernelbox; print(len(kernelbox.list_kernels()), '_hashlib' in sys.modules)"
    assert run_python(code).stdout == "1 False\n"


def test_images_of_a_kernel_elsewhere_do_not_leave_a_home_that_is_refused_later(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_STORE_BACKEND", "memory")
    picture = "display({'image/png': b'x'}, raw=True)"
    (image,) = execute("scratch", f"from IPython.display import display\n{picture}").images
    assert Path(image).parent == own_home / "images"
    destroy("scratch")
    monkeypatch.setenv("KERNELBOX_STORE_BACKEND", "file")
    assert execute("kept", "1 + 1").return_value == "2"


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"name": "package"}',
        "root:x:0:0::/root:/bin/sh\n",
        "[]",
        '{"version": 1, "kernels": {}, "precious": "the user\'s"}',
        '{"version": true, "kernels": {}}',
        '{"version": 1.0, "kernels": {}}',
        '{"version": 1, "kernels": {"linux": {"version": "6.1"}}}',
        '{"version": 1, "kernels": {"00000000000000000000000000000001": {"precious": 1}}}',
        '{"version": 1, "kernels": {"00000000000000000000000000000001": 1}}',
    ],
)
def test_a_file_that_was_never_a_registry_is_left_as_it_is(
    content: str, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.write_text(content)
    monkeypatch.setenv("KERNELBOX_REGISTRY_PATH", str(precious))
    for act in (list_kernels, wipe, lambda: get_or_create("x")):
        with pytest.raises(StoreFailed, match="is not a registry of kernelbox"):
            act()
    assert precious.read_text() == content
    assert os.listdir(tmp_path) == ["precious"]
    monkeypatch.delenv("KERNELBOX_REGISTRY_PATH")


def test_a_project_that_is_moved_away_is_not_made_anew_where_it_was(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    code = (
        "import kernelbox, os\nkernelbox.execute('m', 'v = 7')\nos.rename('../project', '../moved')\n"
        "try: kernelbox.execute('m', 'v')\nexcept kernelbox.StoreFailed as exc: print('moved or removed' in str(exc))\n"
        "os.environ['KERNELBOX_HOME'] = '../moved/.kernelbox'\nprint(kernelbox.execute('m', 'v').return_value)\n"
        "kernelbox.wipe()"
    )
    monkeypatch.delenv("KERNELBOX_HOME")
    monkeypatch.chdir(project)
    assert run_python(code).stdout == "True\n7\n"
    assert os.listdir(tmp_path) == ["moved"]
    monkeypatch.setenv("KERNELBOX_HOME", str(own_home))
