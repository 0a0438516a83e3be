"""A directory held by its descriptor: what is refused, what is never followed, and what is removed."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.store import as_user

from kernelbox import StoreFailed
from kernelbox.host.files._place import Place

ANOTHER_USER = 12345
PRECIOUS = b"export PATH"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    directory = tmp_path / "place"
    directory.mkdir(0o700)
    with Place.open(str(directory)) as opened:
        yield opened


def test_threads_that_list_a_directory_at_once_each_see_every_entry(place: Place, tmp_path: Path) -> None:
    names = {f"entry-{number:04}" for number in range(1000)}
    for name in names:
        (tmp_path / "place" / name).touch()
    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(lambda _: place.listdir(), range(200)))
    assert [listed for listed in seen if set(listed) != names or len(listed) != len(names)] == []


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Makes the file that links in these tests lead to."""
    path = tmp_path / "precious"
    path.write_bytes(PRECIOUS)
    path.chmod(0o644)
    return path


def link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def link_to_itself(path: Path, precious: Path) -> None:
    path.symlink_to(path)


def link_to_nothing(path: Path, precious: Path) -> None:
    path.symlink_to(precious.with_name("missing"))


def link_to_device(path: Path, precious: Path) -> None:
    path.symlink_to("/dev/zero")


def fifo(path: Path, precious: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path, precious: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock, Place.open_any(str(path.parent)) as parent:
        sock.bind(parent.reach(path.name))


def directory(path: Path, precious: Path) -> None:
    (path / "in it").mkdir(parents=True)


def device(path: Path, precious: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make a device")


def foreign_file(path: Path, precious: Path) -> None:
    path.write_bytes(b"foreign")
    try:
        os.chown(path, ANOTHER_USER, ANOTHER_USER)
    except PermissionError:
        pytest.skip("only root can make a file for another user")


ODD = [link, link_to_itself, link_to_nothing, link_to_device, fifo, unix_socket, directory, device, foreign_file]


@pytest.mark.parametrize("plant", ODD)
def test_only_a_regular_file_of_ours_is_read(place: Place, precious: Path, plant: Callable[[Path, Path], None]) -> None:
    plant(Path(place.path, "odd"), precious)
    for read in (place.read, place.tail):
        with pytest.raises(StoreFailed, match=r"odd' (is|belongs).*(not followed|not used)"):
            read("odd", 1000)


@pytest.mark.parametrize("plant", ODD)
def test_whatever_has_the_name_of_a_file_to_write_is_replaced_itself(
    place: Place, precious: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(Path(place.path, "odd"), precious)
    fd = place.open_for_writing("odd")
    os.write(fd, b"ours")
    os.close(fd)
    assert place.read("odd", 10) == b"ours"
    assert precious.read_bytes() == PRECIOUS
    assert not precious.with_name("missing").exists()


@pytest.mark.parametrize("plant", [plant for plant in ODD if plant is not directory])
def test_replacing_a_file_replaces_what_has_its_name_and_nothing_behind_it(
    place: Place, precious: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(Path(place.path, "odd"), precious)
    place.replace("odd", b"ours")
    assert place.read("odd", 10) == b"ours"
    assert stat.S_IMODE(place.stat("odd").st_mode) == 0o600
    assert precious.read_bytes() == PRECIOUS
    assert place.listdir() == ["odd"]


def test_a_file_with_a_second_name_is_not_written_to(place: Place, precious: Path) -> None:
    os.link(precious, Path(place.path, "odd"))
    fd = place.open_for_writing("odd", os.O_APPEND)
    os.write(fd, b"ours")
    os.close(fd)
    assert precious.read_bytes() == PRECIOUS
    assert place.read("odd", 10) == b"ours"


def test_a_file_of_ours_is_written_to_where_it_is(place: Place) -> None:
    place.replace("log", b"first ")
    before = place.stat("log").st_ino
    fd = place.open_for_writing("log", os.O_APPEND)
    os.write(fd, b"second")
    os.close(fd)
    assert (place.read("log", 100), place.stat("log").st_ino) == (b"first second", before)


def test_a_file_is_read_up_to_its_limit_and_refused_beyond(place: Place) -> None:
    place.replace("file", b"x" * 100)
    assert place.read("file", 100) == b"x" * 100
    with pytest.raises(StoreFailed, match="larger than 99 bytes"):
        place.read("file", 99)
    assert place.tail("file", 10) == b"x" * 10


def test_a_file_of_gigabytes_is_refused_without_being_read(place: Place) -> None:
    fd = place.create("huge")
    os.truncate(fd, 1 << 40)
    os.close(fd)
    with pytest.raises(StoreFailed, match="larger than"):
        place.read("huge", 1000)
    assert place.tail("huge", 5) == bytes(5)


def test_adding_a_file_leaves_one_that_is_there(place: Place, precious: Path) -> None:
    assert place.add("key", b"first")
    assert not place.add("key", b"second")
    assert place.read("key", 10) == b"first"
    Path(place.path, "link").symlink_to(precious.with_name("missing"))
    assert not place.add("link", b"ours")
    assert sorted(place.listdir()) == ["key", "link"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777, 0o2770, 0o750, 0o701])
def test_a_private_directory_must_be_closed_to_others(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(StoreFailed, match=rf"open' is open to other users \(its mode is {mode:o}\)"):
        Place.open(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(("mode", "usable"), [(0o755, True), (0o711, True), (0o2755, True), (0o775, False)])
def test_a_directory_that_need_not_be_private_must_not_be_writable_by_others(
    tmp_path: Path, mode: int, usable: bool
) -> None:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(mode)
    if usable:
        Place.open(str(path), private=False).close()
    else:
        with pytest.raises(StoreFailed, match="open to other users"):
            Place.open(str(path), private=False)


def test_a_directory_of_another_user_is_refused(tmp_path: Path, place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory for another user")
    place.make("foreign")
    os.chown(place.path_of("foreign"), ANOTHER_USER, ANOTHER_USER)
    sentence = r"foreign' belongs to another user \(uid 12345, we are uid 0\)"
    with pytest.raises(StoreFailed, match=sentence):
        place.enter("foreign")
    with pytest.raises(StoreFailed, match=sentence):
        Place.open(place.path_of("foreign"))


def test_a_directory_behind_a_link_is_refused_and_one_whose_parent_is_a_link_is_not(
    tmp_path: Path, place: Place
) -> None:
    (tmp_path / "real" / "inner").mkdir(0o700, parents=True)
    (tmp_path / "real").chmod(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StoreFailed, match=r"link' is a link, which is not followed"):
        Place.open(str(tmp_path / "link"))
    Path(place.path, "link").symlink_to(tmp_path / "real")
    with pytest.raises(StoreFailed, match=r"link' is a link, which is not followed"):
        place.enter("link")
    with pytest.raises(StoreFailed, match=r"link' is a link, which is not followed"):
        place.enter("link", make=True)
    (tmp_path / "real" / "inner").chmod(0o700)
    Place.open(str(tmp_path / "link" / "inner")).close()


def test_a_directory_that_is_moved_away_stays_the_one_that_is_used(tmp_path: Path, place: Place) -> None:
    moved = Path(place.path).rename(tmp_path / "moved")
    impostor = Path(place.path)
    impostor.mkdir()
    place.replace("file", b"ours")
    assert (moved / "file").read_bytes() == b"ours"
    assert list(impostor.iterdir()) == []


def test_a_socket_is_reached_through_the_descriptor_however_long_the_path(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux has descriptors in /proc")
    deep = tmp_path.joinpath(*["long" * 25] * 4)
    deep.mkdir(parents=True)
    deep.chmod(0o700)
    with (
        Place.open(str(deep)) as place,
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX) as client,
    ):
        server.bind(place.reach("socket"))
        server.listen()
        client.connect(place.reach("socket"))
        assert place.listdir() == ["socket"]


def test_a_tree_is_removed_and_nothing_that_its_links_lead_to(tmp_path: Path, place: Place, precious: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    tree = Path(place.path, "tree")
    for name in ("a/b/c", "a/d"):
        (tree / name).mkdir(parents=True)
        (tree / name / "link").symlink_to(kept)
        (tree / name / "file").symlink_to(precious)
        os.mkfifo(tree / name / "fifo")
    place.remove_tree("tree")
    assert place.listdir() == []
    assert precious.read_bytes() == PRECIOUS
    assert [path.name for path in kept.iterdir()] == ["file"]


def test_a_link_to_a_tree_is_removed_itself(tmp_path: Path, place: Place) -> None:
    (tmp_path / "kept" / "file").mkdir(parents=True)
    Path(place.path, "tree").symlink_to(tmp_path / "kept")
    place.remove_tree("tree")
    assert place.listdir() == []
    assert (tmp_path / "kept" / "file").is_dir()


def test_a_tree_of_ten_thousand_levels_is_removed(place: Place) -> None:
    fd = os.dup(place.fd)
    for _ in range(10_000):
        os.mkdir("deeper", dir_fd=fd)
        below = os.open("deeper", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    place.remove_tree("deeper")
    assert place.listdir() == []


WRITE_AGAIN = """
import os, sys
print("begun", flush=True)
for number in range(200):
    left = 3
    while left:
        try:
            os.close(os.open(f"{sys.argv[1]}/tree-{number}/note", os.O_CREAT | os.O_EXCL))
            left -= 1
        except FileExistsError:
            pass
        except FileNotFoundError:
            break
"""


def test_a_directory_that_another_process_writes_to_meanwhile_is_removed(place: Place) -> None:
    for number in range(200):  # in some of them the other is quicker once
        Path(place.path, f"tree-{number}").mkdir()
        Path(place.path, f"tree-{number}", "note").touch()
    with subprocess.Popen([sys.executable, "-c", WRITE_AGAIN, place.path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        for number in range(200):
            place.remove_tree(f"tree-{number}")
    assert place.listdir() == []


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o300])
def test_a_tree_whose_directories_forbid_it_is_removed_by_their_owner(mode: int) -> None:
    if sys.platform != "linux":
        pytest.skip("a directory without permissions can be opened to be changed on Linux only")
    with tempfile.TemporaryDirectory(prefix="kb-") as parent:
        os.chmod(parent, 0o777)
        done = as_user(
            ANOTHER_USER,
            f"""
os.makedirs({parent!r} + "/place/tree/a/b/c")
os.chmod({parent!r} + "/place", 0o700)
for path in ("/place/tree/a/b/c", "/place/tree/a/b", "/place/tree/a", "/place/tree"):
    open({parent!r} + path + "/file", "w").close()
    os.chmod({parent!r} + path, {mode})
with Place.open({parent!r} + "/place") as place:
    place.remove_tree("tree")
    print(place.listdir())
""",
        )
        assert done == "[]\n"


def test_what_cannot_be_removed_is_left_without_an_error(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory for another user")
    place.make("foreign")
    Path(place.path, "foreign", "file").touch()
    os.chown(place.path_of("foreign"), ANOTHER_USER, ANOTHER_USER)
    os.chmod(place.path_of("foreign"), 0o500)
    place.remove_tree("foreign")
    place.remove_tree("missing")
    assert os.listdir(place.path_of("foreign")) == ["file"]
    assert stat.S_IMODE(place.stat("foreign").st_mode) == 0o500
