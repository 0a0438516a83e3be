"""Data into and out of kernels: variables as values, and files as the kernel sees them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.support.colours import Colour

from kernelbox import InvalidInput, Kernel, KernelBoxError

MIB = 1024 * 1024


@pytest.fixture(params=[False, True], ids=["Kernel", "AsyncKernel"])
def colour(request: pytest.FixtureRequest, home: Path) -> Iterator[Colour]:
    colour = Colour(request.param)
    yield colour
    colour.close()


@pytest.fixture
def kernel(home: Path) -> Iterator[Kernel]:
    with Kernel() as kernel:
        yield kernel


JSON = [None, True, 7, -1.5, "text ✓", [1, [2, "three"]], {"a": {"b": [None]}}, "", [], {}]


@pytest.mark.parametrize("value", JSON, ids=repr)
def test_json_values_arrive_as_they_are(kernel: Kernel, value: object) -> None:
    kernel["x"] = value
    assert kernel.execute("x").return_value == (None if value is None else repr(value))
    assert kernel["x"] == value


@pytest.mark.parametrize("size", [0, 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_bytes_of_any_size_arrive_whole(kernel: Kernel, size: int) -> None:
    value = bytes(range(256)) * (size // 256 + 1)
    kernel["data"] = value[:size]
    assert kernel.execute("len(data)").return_value == str(size)
    assert kernel["data"] == value[:size]


ARRAYS = {
    "floats": np.linspace(0, 1, 1_000_003),
    "a matrix": np.arange(12).reshape(3, 4),
    "another order": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "a slice with steps": np.arange(20)[::3],
    "no elements": np.empty((0, 5)),
    "no dimension": np.array(3.5),
    "times": np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"),
    "text": np.array(["a", "bcd"]),
    "records": np.array([(1, [2.0, 3.0])], dtype=[("n", "i4"), ("xs", "f8", (2,))]),
    "booleans": np.array([True, False]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_an_array_keeps_its_type_shape_and_values(kernel: Kernel, array: Any) -> None:
    kernel["a"] = array
    described = kernel.execute("(str(a.dtype), a.shape, a.flags.writeable)").return_value
    assert described == repr((str(array.dtype), array.shape, True))
    back = kernel["a"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_a_table_keeps_its_columns_and_index(kernel: Kernel) -> None:
    frame = pd.DataFrame({"city": ["Bern", "Rome"], "n": [1.5, None]}, index=pd.Index([7, 8], name="id"))
    kernel["df"] = frame
    assert kernel.execute("type(df).__module__, list(df.columns)").ok
    kernel.execute("df['double'] = df.n * 2; column = df['double']")
    pd.testing.assert_frame_equal(kernel["df"], frame.assign(double=[3.0, None]))
    pd.testing.assert_series_equal(kernel["column"], frame.assign(double=[3.0, None])["double"])


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, np.array([object()]), float, lambda: 1, pd.DataFrame({"a": [1, "b", object()]})],
    ids=lambda v: type(v).__name__,
)
def test_what_cannot_travel_without_pickling_is_refused_with_a_sentence(kernel: Kernel, value: object) -> None:
    with pytest.raises(InvalidInput, match="write it to a file"):
        kernel["x"] = value
    assert kernel.variables() == []


def test_a_masked_array_is_refused_because_it_would_lose_its_mask(kernel: Kernel) -> None:
    with pytest.raises(InvalidInput, match="mask"):
        kernel["x"] = np.ma.masked_array([1, 2], mask=[False, True])


def test_a_value_of_the_kernel_that_cannot_travel_is_named(kernel: Kernel) -> None:
    kernel.execute("class Odd: pass\nodd = Odd()")
    with pytest.raises(KernelBoxError, match=r"'odd'.*Odd objects cannot be passed on"):
        kernel["odd"]


def test_nothing_that_a_kernel_sends_is_unpickled(kernel: Kernel, tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    kernel.execute(
        "import os, numpy as np\n"
        f"class Trap:\n    def __reduce__(self): return os.system, ('touch {mark}',)\n"
        "trap, traps = Trap(), np.array([Trap()])\n"
    )
    for name in ("trap", "traps"):
        with pytest.raises(KernelBoxError):
            kernel[name]
    assert not mark.exists()


@pytest.mark.parametrize("name", ["", "1x", "a b", "class", "a.b", 5], ids=repr)
def test_what_is_not_a_name_is_refused(kernel: Kernel, name: Any) -> None:
    with pytest.raises(InvalidInput, match="name"):
        kernel[name] = 1
    with pytest.raises(InvalidInput, match="name"):
        kernel[name]


def test_a_variable_that_is_missing_is_a_key_error(colour: Colour) -> None:
    kernel = colour.open()
    with pytest.raises(KeyError, match="missing"):
        colour.call(kernel.get, "missing")
    colour.call(kernel.stop)


def test_values_and_files_move_in_both_colours(colour: Colour, tmp_path: Path) -> None:
    kernel = colour.open(cwd=tmp_path)
    colour.call(kernel.set, "x", {"a": [1, 2]})
    assert colour.call(kernel.get, "x") == {"a": [1, 2]}
    assert colour.call(kernel.files.write, "sub.txt", "héllo") == 6
    assert colour.call(kernel.files.read, "sub.txt") == "héllo".encode()
    assert [(f.name, f.size, f.is_dir) for f in colour.call(kernel.files.list)] == [("sub.txt", 6, False)]
    colour.call(kernel.files.remove, "sub.txt")
    assert list(tmp_path.iterdir()) == []
    colour.call(kernel.stop)


def test_files_are_looked_at_moved_and_removed_in_both_colours(colour: Colour, tmp_path: Path) -> None:
    kernel = colour.open(cwd=tmp_path)
    files = kernel.files
    assert [colour.call(files.make_dir, "a/b") for _ in range(2)] == [True, False]
    colour.call(files.write, "a/b/one.txt", "1")
    (tmp_path / "a" / "link").symlink_to(tmp_path.parent)
    info = colour.call(files.info, "a/b/one.txt")
    assert (info.name, info.size, info.is_dir) == ("one.txt", 1, False)
    assert colour.call(files.info, "a/b/..").name == "a"
    colour.call(files.rename, "a/b/one.txt", "a/two.txt")
    assert [colour.call(files.exists, path) for path in ("a/b/one.txt", "a/two.txt", "a/two.txt/x")] == [0, 1, 0]
    with pytest.raises(OSError, match="not empty"):
        colour.call(files.remove, "a")
    colour.call(files.remove, "a", recursive=True)
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.parent.exists()  # a link is removed, and not what it leads to
    colour.call(kernel.stop)


def test_a_directory_is_removed_though_a_cell_has_replaced_what_removes_directories(
    colour: Colour, tmp_path: Path
) -> None:
    kernel = colour.open(cwd=tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    colour.call(kernel.execute, "import os, shutil; os.rmdir = shutil.rmtree = lambda *args, **options: None")
    colour.call(kernel.files.remove, "a", recursive=True)
    assert list(tmp_path.iterdir()) == []
    colour.call(kernel.stop)


@pytest.mark.parametrize("size", [0, 5, 4 * MIB, 12 * MIB + 3])
def test_a_file_of_any_size_is_written_and_read_in_pieces(home: Path, tmp_path: Path, size: int) -> None:
    with Kernel(cwd=tmp_path) as kernel:
        content = bytes(size)
        for source in (content, io.BytesIO(content), (content[at : at + MIB] for at in range(0, size, MIB))):
            assert kernel.files.write("big", source) == size
            assert (tmp_path / "big").stat().st_size == size
        assert sum(map(len, kernel.files.stream("big"))) == size


def test_a_file_that_is_written_again_keeps_its_mode(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.touch()
    script.chmod(0o751)
    with Kernel(cwd=tmp_path) as kernel:
        kernel.files.write("run.sh", "echo ran")
        assert kernel.bash("./run.sh").stdout == "ran\n"
    assert script.stat().st_mode & 0o7777 == 0o751


def test_a_write_that_fails_half_way_leaves_the_old_file(home: Path, tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(5 * MIB)
        raise RuntimeError("the source is gone")

    with Kernel(cwd=tmp_path) as kernel:
        kernel.files.write("kept", b"old")
        with pytest.raises(RuntimeError, match="the source is gone"):
            kernel.files.write("kept", broken())
    assert (tmp_path / "kept").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_errors_of_the_file_system_keep_their_class(home: Path, tmp_path: Path) -> None:
    with Kernel(cwd=tmp_path) as kernel:
        with pytest.raises(FileNotFoundError, match="nowhere"):
            kernel.files.read("nowhere")
        with pytest.raises(IsADirectoryError):
            kernel.files.read(".")
        (tmp_path / "folder").mkdir()
        with pytest.raises(IsADirectoryError, match=r"Is a directory: 'folder'$"):
            kernel.files.write("folder", b"")
        with pytest.raises(InvalidInput, match="path"):
            kernel.files.read("")


def test_a_sandboxed_kernel_has_files_that_the_host_does_not_see(home: Path, tmp_path: Path) -> None:
    with Kernel(cwd=tmp_path, sandbox=True) as kernel:
        kernel.files.write("/tmp/inside", b"of the sandbox")
        assert kernel.execute("open('/tmp/inside').read()").return_value == "'of the sandbox'"
        assert not Path("/tmp/inside").exists()
        with pytest.raises(OSError, match=r"Read-only file system: '/usr/planted'$"):
            kernel.files.write("/usr/planted", b"")


FORGED = {
    "no shape": "{'kind': 'array', 'meta': {}, 'size': 3, 'payload': b'abc'}",
    "no such shape": "{'kind': 'array', 'meta': {'dtype': '|u1', 'shape': [10**30]}, 'size': 1, 'payload': b'a'}",
    "another size": "{'kind': 'bytes', 'meta': {}, 'size': 3, 'payload': b'abcd'}",
    "small pieces": "{'kind': 'bytes', 'meta': {}, 'size': 10**9, 'payload': b'a'}",
    "a deep value": "{'kind': 'json', 'meta': {}, 'size': 10**6, 'payload': b'[' * 10**6}",
    "no table": "{'kind': 'arrow', 'meta': {}, 'size': 3, 'payload': b'abc'}",
    "files of no time": "{'files': [['a', 1, False, 10**400]]}",
}


@pytest.mark.parametrize("answer", FORGED.values(), ids=FORGED)
def test_a_forged_answer_is_reported_as_tampering(kernel: Kernel, answer: str) -> None:
    kernel.execute(
        "import gc\n"
        "from kernelbox.guest.serve._transfers import Transfers\n"
        "next(o for o in gc.get_objects() if type(o) is Transfers).__class__ = type(\n"
        f"    'Forged', (Transfers,), {{'answer': lambda *_: {{'status': 'ok', **{answer}}}}})\n"
    )
    with pytest.raises(KernelBoxError, match="tampered"):
        kernel.files.list() if "files" in answer else kernel["anything"]


def test_many_values_are_moved_at_once(home: Path) -> None:
    with Kernel() as kernel, ThreadPoolExecutor(12) as threads:
        kernel.execute(f"big = bytes({9 * MIB})")
        assert {len(value) for value in threads.map(kernel.get, ["big"] * 12)} == {9 * MIB}
        for _ in threads.map(lambda n: kernel.set(f"x{n}", bytes([n]) * (9 * MIB)), range(12)):
            pass
        assert kernel.execute("all(globals()[f'x{n}'] == bytes([n]) * len(big) for n in range(12))").value is True


def test_a_write_that_the_system_refuses_leaves_no_part_of_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with Kernel(cwd=tmp_path) as kernel, pytest.raises(IsADirectoryError):
        kernel.files.write("taken", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_write_to_a_kernel_that_has_died_says_why_it_failed(home: Path, tmp_path: Path) -> None:
    with Kernel(cwd=tmp_path) as kernel:

        def broken() -> Iterator[bytes]:
            yield bytes(5 * MIB)
            kernel.execute("import os; os._exit(1)")
            raise RuntimeError("the source is gone")

        with pytest.raises(RuntimeError, match="the source is gone"):
            kernel.files.write("new", broken())


def test_views_of_bytes_in_any_form_arrive_whole(kernel: Kernel) -> None:
    for view in (memoryview(b"abcdef")[::2], np.empty((0, 5), "u1").data, memoryview(bytearray(b"xy"))):
        kernel["x"] = view
        assert kernel["x"] == view.tobytes()
