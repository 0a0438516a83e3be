"""The files of a workspace: what is inside it, and nothing else, whatever has been planted there."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from pathlib import Path

import pytest

from kernelbox import InvalidInput
from kernelbox.host.files._workspace_files import DirectoryEntry, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return Workspace(str(tmp_path / "inside"))


def test_a_file_is_written_with_its_directories_and_read_by_range(workspace: Workspace) -> None:
    assert workspace.write("a/b/c.txt", b"0123456789")
    assert workspace.read("a/b/c.txt") == (b"0123456789", 10)
    assert workspace.read("./a//b/c.txt", 3, 4) == (b"3456", 10)
    assert workspace.read(f"{workspace.root}/a/b/c.txt", 20, 4) == (b"", 10)
    assert not workspace.write("a/b/c.txt", b"new")
    assert workspace.read("a/b/c.txt") == (b"new", 3)
    assert workspace.entries("a/b", 10) == ([DirectoryEntry("c.txt", "file", 3)], 1)


def test_a_range_beyond_all_numbers_is_empty(workspace: Workspace) -> None:
    workspace.write("x", b"0123")
    assert workspace.read("x", 10**30, 4) == (b"", 4)


def test_a_path_that_would_make_directories_without_end_is_refused(workspace: Workspace) -> None:
    with pytest.raises(InvalidInput, match="4,095 characters"):
        workspace.write("a/" * 5_000 + "x", b"")
    assert workspace.entries(".", 10) == ([], 0)


def test_of_many_files_the_first_by_name_are_listed_and_all_are_counted(workspace: Workspace) -> None:
    for number in range(300):
        workspace.write(f"f{number:03}", b"")
    found, total = workspace.entries(".", 3)
    assert ([entry.name for entry in found], total) == (["f000", "f001", "f002"], 300)


def test_a_file_that_is_replaced_keeps_its_mode(workspace: Workspace) -> None:
    workspace.write("run.sh", b"")
    os.chmod(f"{workspace.root}/run.sh", 0o750)
    workspace.write("run.sh", b"x")
    assert os.stat(f"{workspace.root}/run.sh").st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "path",
    [
        *["", ".", "/", "..", "../outside/secret", "a/../../outside/secret", "/etc/passwd", "x\0", "x/"],
        *[".env", ".kernelbox/registry.json", "sub/.env", "\udcff/\ud800"],
    ],
)
def test_a_path_that_leads_outside_or_to_secrets_is_refused(workspace: Workspace, path: str) -> None:
    for use in (workspace.read, lambda path: workspace.write(path, b"x")):
        with pytest.raises(InvalidInput):
            use(path)


def test_a_directory_whose_name_begins_like_the_workspace_is_outside(workspace: Workspace) -> None:
    Path(f"{workspace.root}-other").mkdir()
    with pytest.raises(InvalidInput, match="inside the workspace"):
        workspace.entries(f"{workspace.root}-other", 10)


def test_links_are_listed_and_not_followed(workspace: Workspace, tmp_path: Path) -> None:
    root = tmp_path / "inside"
    (root / "file").symlink_to(tmp_path / "outside" / "secret")
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    assert [entry.kind for entry in workspace.entries(".", 2)[0]] == ["link", "link"]
    assert workspace.entries(".", 2)[1] == 3
    for path in ("file", "folder/secret", "loop", "loop/x", "folder/new"):
        with pytest.raises(InvalidInput):
            workspace.read(path)
        with pytest.raises(InvalidInput):
            workspace.write(path, b"planted")
    with pytest.raises(InvalidInput):
        workspace.entries("folder", 10)
    assert (tmp_path / "outside" / "secret").read_text() == "secret"
    assert os.listdir(tmp_path / "outside") == ["secret"]


def test_what_is_no_regular_file_is_neither_read_nor_replaced(workspace: Workspace, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "inside" / "pipe")
    (tmp_path / "inside" / "folder").mkdir()
    for path in ("pipe", "folder"):
        with pytest.raises(InvalidInput):
            workspace.read(path)
        with pytest.raises(InvalidInput):
            workspace.write(path, b"x")
    assert sorted(os.listdir(tmp_path / "inside")) == ["folder", "pipe"]


def test_secrets_are_not_listed(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "inside" / ".env").write_text("TOKEN=1")
    (tmp_path / "inside" / ".kernelbox").mkdir()
    assert workspace.entries(".", 10) == ([], 0)


def test_a_link_that_takes_the_place_of_a_directory_meanwhile_leads_nowhere(
    workspace: Workspace, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    enough = threading.Event()

    def swap() -> None:
        """Has `turn` be a directory and a link by turns."""
        for number in itertools.count():
            if enough.is_set():
                return
            fresh = inside / str(number)
            if number % 2:
                fresh.symlink_to(outside)
            else:
                fresh.mkdir()
                (fresh / "secret").write_text("mine")
            for old, new in ((inside / "turn", inside / f"old{number}"), (fresh, inside / "turn")):
                with contextlib.suppress(OSError):  # the other thread has made or left one
                    os.rename(old, new)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[object] = set()
    try:
        for _ in range(2_000):
            for use in (workspace.read, lambda path: workspace.write(path, b"mine")):
                try:
                    seen.add(use("turn/secret"))
                except InvalidInput:
                    seen.add("refused")
    finally:
        enough.set()
        swapping.join()
    assert {(b"mine", 4), "refused"} <= seen <= {(b"mine", 4), True, False, "refused"}
    assert (outside / "secret").read_text() == "secret"
    assert os.listdir(outside) == ["secret"]
