"""Images that cells show become files: which, where, how many, and what is said of those that do not."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from kernelbox import ExecutionResult, InvalidInput, OutputItem
from kernelbox.core import _images
from kernelbox.core._images import ImageFiles, choose_images_dir
from kernelbox.host.files._home import Home
from kernelbox.wire._messages import Clear


def image(size: int) -> OutputItem:
    return OutputItem("display_data", data={"image/png": base64.b64encode(bytes(size)).decode()})


def concluded(files: ImageFiles, limit: int = 0, **parts: Any) -> ExecutionResult:
    result = ExecutionResult("success", **parts)
    files.conclude(result, limit)
    return result


@pytest.fixture
def unusable(tmp_path: Path) -> ImageFiles:
    """A directory that is a file, and an image that could not be written to it."""
    (tmp_path / "file").write_text("")
    files = ImageFiles(str(tmp_path / "file"))
    assert files.save(image(1)) is None
    return files


@pytest.mark.parametrize(
    ("mime", "suffix", "value", "written"),
    [
        ("image/png", ".png", "YWJj", b"abc"),
        ("image/jpeg", ".jpg", "YWJj", b"abc"),
        ("image/gif", ".gif", "YWJj", b"abc"),
        ("image/webp", ".webp", "YWJj", b"abc"),
        ("image/svg+xml", ".svg", "<svg>é\ud800</svg>", b"<svg>\xc3\xa9\\ud800</svg>"),
    ],
)
def test_every_kind_of_image_is_a_file_with_its_suffix(
    tmp_path: Path, mime: str, suffix: str, value: str, written: bytes
) -> None:
    files, item = ImageFiles(str(tmp_path / "new" / "folder")), OutputItem("display_data", data={mime: value})
    assert ImageFiles.has_image(item)
    path = files.save(item)
    assert path is not None
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{16}-1" + re.escape(suffix), os.path.basename(path))
    assert Path(path).parent == tmp_path / "new" / "folder"
    assert Path(path).read_bytes() == written
    assert concluded(files).images == [path]


@pytest.mark.parametrize("data", [{}, {"text/plain": "x"}, {"image/bmp": "YWJj"}])
def test_what_is_no_image_is_no_file(tmp_path: Path, data: dict[str, Any]) -> None:
    files, item = ImageFiles(str(tmp_path)), OutputItem("display_data", data=data)
    assert not ImageFiles.has_image(item)
    assert files.save(item) is None
    assert files.take_notice() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["not base64!", "YWJj!", "", None, 5, {"x": 1}, "é"])
def test_an_image_that_is_none_is_no_file_and_no_word_is_said_of_it(tmp_path: Path, value: object) -> None:
    files = ImageFiles(str(tmp_path))
    assert files.save(OutputItem("display_data", data={"image/png": value})) is None
    result = concluded(files, text="text")
    assert (result.images, result.text, result.truncated) == ([], "text", False)
    assert list(tmp_path.iterdir()) == []


def test_an_output_with_several_types_is_one_file_of_the_first_that_can_be_read(tmp_path: Path) -> None:
    files = ImageFiles(str(tmp_path))
    path = files.save(
        OutputItem("display_data", data={"image/svg+xml": "<svg/>", "image/png": "!", "image/gif": "eA=="})
    )
    assert [entry.name for entry in tmp_path.iterdir()] == [os.path.basename(path or "")]
    assert (path or "").endswith(".svg")


def test_the_files_of_an_execution_are_numbered_and_those_of_two_never_meet(tmp_path: Path) -> None:
    first, second = ImageFiles(str(tmp_path)), ImageFiles(str(tmp_path))
    for files in (first, second, first):
        files.save(image(1))
    stems = {path.rpartition("-")[0] for path in first.paths}
    assert len(stems) == 1
    assert [path.rpartition("-")[2] for path in first.paths] == ["1.png", "2.png"]
    assert len(list(tmp_path.iterdir())) == 3


def test_the_images_of_a_home_are_in_its_own_directory(tmp_path: Path) -> None:
    files = ImageFiles(Home(str(tmp_path / "home"), str(tmp_path / "key")))
    path = files.save(image(3))
    assert path == f"{tmp_path}/home/images/{os.path.basename(path or '')}"
    assert Path(path).read_bytes() == bytes(3)


def test_descriptors_are_closed_whether_or_not_a_file_was_written(tmp_path: Path, unusable: ImageFiles) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ImageFiles(str(tmp_path)).save(image(1))
    ImageFiles(str(tmp_path / "file" / "x")).save(image(1))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_cannot_be_used_is_said_once_and_no_more_is_tried(
    tmp_path: Path, unusable: ImageFiles
) -> None:
    (tmp_path / "file").unlink()
    assert unusable.save(image(1)) is None, "after the first failure no more is tried"
    told = unusable.take_notice()
    assert told is not None
    said = f"[kernelbox] images could not be written to '{tmp_path}/file': Not a directory"
    assert (told.kind, told.name, told.text) == ("stream", "stderr", f"{said}\n")
    assert unusable.take_notice() is None
    result = concluded(unusable, text="text", stderr="begun")
    assert (result.images, result.truncated) == ([], False)
    assert (result.text, result.stderr) == (f"text\n{said}", f"begun\n{said}\n")
    assert [(item.kind, item.name, item.text) for item in result.outputs] == [("stream", "stderr", f"{said}\n")]


def test_a_link_in_the_place_of_the_directory_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    files = ImageFiles(str(tmp_path / "link"))
    assert files.save(image(1)) is None
    assert concluded(files).stderr == f"[kernelbox] images could not be written to '{tmp_path}/link': it is a link\n"


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [("", 0, "{}"), ("", -1, ""), ("x", 2, "x\n{}"), ("x", 1, "x"), ("x\n", 2, "x\n{}"), ("x\n", 1, "x\n")],
)
def test_what_is_said_of_images_is_added_where_the_limit_has_room(
    tmp_path: Path, unusable: ImageFiles, text: str, room: int, expected: str
) -> None:
    said = f"[kernelbox] images could not be written to '{tmp_path}/file': Not a directory"
    assert concluded(unusable, len(said) + room, text=text).text == expected.format(said)
    assert concluded(unusable, 0, text=text).text == (text if text.endswith("\n") or not text else text + "\n") + said


def test_a_limit_of_one_character_has_no_room_for_what_is_said(unusable: ImageFiles) -> None:
    assert concluded(unusable, 1, text="x").text == "x"


def test_the_bytes_of_all_images_of_an_execution_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_images, "_MOST_BYTES", 1000)
    files = ImageFiles(str(tmp_path))
    written = [files.save(image(size)) is not None for size in (400, 600, 1)]
    assert written == [True, True, False]
    assert sorted(path.stat().st_size for path in tmp_path.iterdir()) == [400, 600]
    result = concluded(files)
    assert result.truncated
    assert "only the first 2 images were written: 500 files or 0 MiB are the limit" in result.stderr
    assert [os.path.getsize(path) for path in result.images] == [400, 600]


def test_the_number_of_images_of_an_execution_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "_MOST_FILES", 3)
    files = ImageFiles(str(tmp_path))
    assert [files.save(image(1)) is not None for _ in range(5)] == [True, True, True, False, False]
    assert len(list(tmp_path.iterdir())) == 3
    assert "only the first 3 images were written: 3 files or 1,024 MiB are the limit" in concluded(files).stderr


def events(closed: list[bool], *items: object) -> Generator[Any, None, str]:
    try:
        yield from items
        return "result"
    finally:
        closed.append(True)


def test_what_is_for_users_is_passed_on_with_its_images_written_and_what_is_said_of_them(tmp_path: Path) -> None:
    closed: list[bool] = []
    text, shown, other = OutputItem("stream", text="x"), image(1), object()
    files = ImageFiles(str(tmp_path))
    steps = files.save_all(events(closed, text, Clear("id", False), shown, other))
    assert (next(steps), next(steps)) == (text, shown)
    assert len(files.paths) == 1, "the file is there when the event is seen"
    assert next(steps) is other
    with pytest.raises(StopIteration, match="result"):
        next(steps)
    assert closed == [True]


def test_that_an_image_could_not_be_written_is_passed_on_behind_it(unusable: ImageFiles) -> None:
    text = OutputItem("stream", text="x")
    passed = list(unusable.save_all(events([], text, text)))
    assert [item.name for item in passed] == [None, "stderr", None]


def test_what_is_left_early_is_closed(tmp_path: Path) -> None:
    closed: list[bool] = []
    begun = events(closed, 1, 2)
    steps = ImageFiles(str(tmp_path)).save_all(begun)
    next(steps)
    steps.close()
    assert closed == [True]


@pytest.mark.parametrize("given", [None, ""])
def test_without_a_directory_it_is_images_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "images").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "link")
    assert choose_images_dir(given) == f"{tmp_path}/real/images", "a link of that name may be a cell's"


@pytest.mark.parametrize("given", ["link", b"link", Path("link")])
def test_links_on_a_path_that_the_caller_names_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: object
) -> None:
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert choose_images_dir(given) == f"{tmp_path}/real"


@pytest.mark.parametrize(
    ("given", "why"), [(5, "use a path"), (["x"], "use a path"), ("a\0b", "without NUL"), (b"a\0b", "without NUL")]
)
def test_what_is_no_path_is_refused(given: object, why: str) -> None:
    with pytest.raises(InvalidInput, match=rf"images_dir cannot be .*{why}"):
        choose_images_dir(given)


def test_a_relative_path_in_a_deleted_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidInput, match="the working directory is gone: use an absolute path"):
        choose_images_dir("x")
    assert choose_images_dir("/somewhere") == "/somewhere"
