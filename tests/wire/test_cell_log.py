"""The log of a kernel's cells: what a kernel writes is read again, whatever a crash or a cell has left in the files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelbox.core.cells._history import CellLog, LoggedCell, arrange
from kernelbox.guest.output._cell_logger import CellLogger
from kernelbox.wire import _cell_log as log
from kernelbox.wire._framing import encode
from kernelbox.wire._messages import Display, Done, Execute, Output


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[int, int]]:
    newer, older = (os.open(tmp_path / name, os.O_RDWR | os.O_CREAT | os.O_APPEND) for name in ("a", "b"))
    os.write(newer, log.make_header(1))
    yield newer, older
    for fd in (newer, older):
        os.close(fd)


def read(files: tuple[int, int]) -> CellLog:
    contents = [os.pread(fd, os.fstat(fd).st_size, 0) for fd in files]
    contents = sorted(filter(log.read_number, contents), key=log.read_number)
    records = [record for data in contents for record in log.read_records(data)[0]]
    return arrange(records, log.read_number(contents[0]) > 1)


def run(history: CellLogger, execution_id: str, code: str, *frames: bytes, count: int | None = 1) -> None:
    history.begin(Execute(execution_id, code))
    for frame in frames:
        history.add(frame)
    done = Done(execution_id, "ok", count)
    history.end(encode(done), done)


def told(cells: list[LoggedCell]) -> list[tuple[str, str, str]]:
    return [(cell.code, cell.status, cell.read().text) for cell in cells]


def test_what_a_cell_showed_is_in_the_log_with_its_end(files: tuple[int, int]) -> None:
    run(CellLogger(files), "1", "print('é')", encode(Output("1", "stdout", "é\n")), count=7)
    (cell,) = read(files).cells
    assert (cell.execution_id, cell.language, cell.count, cell.status) == ("1", "python", 7, "success")
    assert cell.read().text == "é"
    assert cell.ended_at is not None
    assert cell.ended_at >= cell.began_at


def test_requests_that_want_no_history_are_not_logged(files: tuple[int, int]) -> None:
    history = CellLogger(files)
    for request in (
        Execute("1", "a", silent=True),
        Execute("2", "b", store_history=False),
        Execute("3", "c", language="comm"),
    ):
        history.begin(request)
        history.add(encode(Output(request.id, "stdout", "text")))
        history.flush()
        history.end(encode(Done(request.id, "ok")), Done(request.id, "ok"))
    assert read(files).cells == []


def test_a_cell_that_did_not_end_is_in_the_log_with_what_was_flushed(files: tuple[int, int]) -> None:
    history = CellLogger(files)
    history.begin(Execute("1", "while True: pass"))
    history.add(encode(Output("1", "stdout", "seen")))
    history.flush()
    history.add(encode(Output("1", "stdout", "not yet")))
    assert told(read(files).cells) == [("while True: pass", "running", "seen")]


@pytest.mark.parametrize(
    ("done", "status"),
    [
        (Done("1", "ok"), "success"),
        (Done("1", "error"), "error"),
        (Done("1", "error", interrupted=True), "interrupted"),
        (Done("1", "aborted"), "unknown"),
    ],
)
def test_the_status_is_how_the_cell_ended(files: tuple[int, int], done: Done, status: str) -> None:
    history = CellLogger(files)
    history.begin(Execute("1", "x"))
    history.end(encode(done), done)
    assert read(files).cells[0].status == status


def test_both_files_stay_bounded_and_the_oldest_cells_go_first(files: tuple[int, int]) -> None:
    history = CellLogger(files)
    for number in range(300):
        picture = Display(str(number), "display_data", {}, {}, blobs={"image/png": bytes(10_000 * (number % 40))})
        run(history, str(number), f"show({number})", *[encode(picture)] * (number % 9), count=number)
        assert sum(os.fstat(fd).st_size for fd in files) <= 2 * (log.FULL + 3_000_000)
    past = read(files)
    assert past.is_cut
    kept = [cell.count for cell in past.cells]
    assert kept == [*range(300 - len(kept), 300)]
    assert len(kept) >= 10


def test_the_middle_of_a_cell_that_shows_much_is_left_out(files: tuple[int, int]) -> None:
    history = CellLogger(files)
    history.begin(Execute("1", "flood()"))
    for number in range(400):
        history.add(encode(Output("1", "stdout", f"{number:09}\n" * 1000)))
        history.flush()
    done = Done("1", "ok")
    history.end(encode(done), done)
    text = read(files).cells[0].read().text
    assert text.startswith("000000000\n")
    assert text.endswith("000000399")
    assert "outputs cut" in text
    assert 1_900_000 < len(text) < 2_200_000


def test_long_code_is_cut(files: tuple[int, int]) -> None:
    run(CellLogger(files), "1", "x" * (log.LONGEST_CODE + 5))
    (cell,) = read(files).cells
    assert cell.code.endswith("\n# [… 5 characters cut …]")
    assert len(cell.code) < log.LONGEST_CODE + 100


def test_halves_of_characters_in_code_can_be_written(files: tuple[int, int]) -> None:
    run(CellLogger(files), "1", "'\ud800'")
    assert read(files).cells[0].code == "'\\ud800'"


def test_a_copy_of_a_kernel_writes_to_its_own_files(files: tuple[int, int], tmp_path: Path) -> None:
    history = CellLogger(files)
    run(history, "1", "both")
    (tmp_path / "c").write_bytes((tmp_path / "a").read_bytes())
    (tmp_path / "d").touch()
    own = os.open(tmp_path / "c", os.O_RDWR | os.O_APPEND), os.open(tmp_path / "d", os.O_RDWR | os.O_APPEND)
    history.reopen(own)
    run(history, "2", "only the copy")
    assert [cell.code for cell in read(own).cells] == ["both", "only the copy"]
    assert [cell.code for cell in read(files).cells] == ["both"]
    for fd in own:
        os.close(fd)


def test_a_file_that_took_the_number_of_the_log_is_not_written_to(files: tuple[int, int], tmp_path: Path) -> None:
    history = CellLogger(files)
    run(history, "1", "before")
    kept = os.dup(files[0])
    precious = os.open(tmp_path / "precious", os.O_RDWR | os.O_CREAT)
    os.dup2(precious, files[0])
    run(history, "2", "after")
    assert os.fstat(precious).st_size == 0
    os.dup2(kept, files[0])
    assert [cell.code for cell in read(files).cells] == ["before"]
    for fd in (kept, precious):
        os.close(fd)


def test_a_limit_on_the_size_of_files_makes_the_log_continue_in_the_other_file(files: tuple[int, int]) -> None:
    history = CellLogger(files)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        for number in range(10):
            run(history, str(number), f"{number}", encode(Output(str(number), "stdout", "x" * 20_000)), count=number)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    counts = [cell.count for cell in read(files).cells if cell.status == "success"]
    assert {5, 6, 7, 8} <= set(counts)
    assert max(os.fstat(fd).st_size for fd in files) <= 100_000


# -- reading ---------------------------------------------------------------------------------------------------


def test_a_record_that_a_crash_has_cut_is_left_out_and_told() -> None:
    whole = log.make_header(1) + log.make_began("1", "python", "x", 1.0)
    for cut in range(1, 20):
        records, sound = log.read_records(whole + log.make_began("2", "python", "y", 2.0)[:-cut])
        assert [record.kind for record in records] == [log.BEGAN]
        assert sound == len(whole)


def test_the_first_loss_after_a_cell_counts_and_ends_it() -> None:
    records = log.read_records(
        log.make_header(1)
        + log.make_record(log.LOST, 0.5, b"nothing had run")
        + log.make_began("1", "python", "x", 1.0)
        + log.make_record(log.LOST, 2.0, b"killed")
        + log.make_record(log.LOST, 3.0, b"again")
        + log.make_began("2", "python", "y", 4.0)
    )[0]
    first, second = arrange(records, False).cells
    assert (first.status, first.lost, first.ended_at) == ("died", "killed", 2.0)
    assert (second.status, second.lost, second.ended_at) == ("running", "", None)


def test_a_cell_whose_end_was_not_logged_is_unknown_when_another_follows() -> None:
    began = log.make_began("1", "python", "x", 1.0) + log.make_began("2", "python", "y", 2.0)
    cells = arrange(log.read_records(log.make_header(1) + began)[0], False).cells
    assert [cell.status for cell in cells] == ["unknown", "running"]


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(), st.binary(max_size=60)), max_size=20), st.binary(max_size=40))
def test_whatever_a_cell_writes_to_the_files_can_be_told(forged: list[tuple[int, float, bytes]], rest: bytes) -> None:
    data = log.make_header(3) + b"".join(log.make_record(*record) for record in forged) + rest
    for cell in arrange(log.read_records(data)[0], False).cells:
        past = cell.describe(100)
        f"{past}{past.code}{past.text}{past.lost}{past.execution_id}".encode()
        assert len(past.text) <= 100


@given(st.binary(max_size=200))
def test_bytes_without_a_header_are_no_log(data: bytes) -> None:
    assert log.read_records(data) == ([], 0)
