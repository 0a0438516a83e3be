"""The state file: what a kernel wrote there is read back, and no bytes whatever make the reader fail."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import any_text, untimed

from kernelbox.wire import _kernel_state as state


def file(
    *,
    magic: bytes = state.MAGIC,
    activity: int = state.BUSY,
    executions: int = 3,
    busy_since: float = 1000.5,
    last_used: float = 2000.25,
    running: bytes = b"abc",
    client: int = 77,
    aimed_at: bytes = b"",
    farewell: bytes = b"",
    count: int = 9,
) -> bytes:
    header = state.HEADER.pack(magic, activity, executions, busy_since, last_used, client, running, aimed_at)
    return header + farewell.ljust(state.FAREWELL, b"\0") + state.COUNT.pack(count)


@pytest.mark.parametrize(
    ("number", "activity"), [(state.STARTING, "starting"), (state.IDLE, "idle"), (state.BUSY, "busy")]
)
def test_the_file_says_what_the_kernel_does(number: int, activity: str) -> None:
    parsed = state.parse(file(activity=number))
    assert parsed is not None
    assert parsed.activity == activity


@untimed
@given(
    st.integers(0, state.MOST_EXECUTIONS),
    st.floats(0, 2**33),
    st.floats(0, 2**33),
    st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=32),
)
def test_the_file_is_read_as_it_was_written(executions: int, busy_since: float, last_used: float, running: str) -> None:
    written = file(
        executions=executions, busy_since=busy_since, last_used=last_used, running=state.target(running), aimed_at=b"x"
    )
    parsed = state.parse(written)
    assert parsed is not None
    assert (parsed.executions, parsed.busy_since, parsed.last_used) == (executions, busy_since, last_used)
    assert (parsed.running, parsed.client, parsed.execution_count) == (running, 77, 9)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        file()[: state.HEADER.size - 1],
        bytes(state.SIZE),
        file(magic=b"KBX2"),
        file(activity=state.BUSY + 1),
        file(activity=2**32 - 1),
    ],
    ids=["empty", "cut", "zeros", "other magic", "next activity", "last activity"],
)
def test_bytes_that_are_no_state_file_give_no_state(data: bytes) -> None:
    assert state.parse(data) is None


def test_the_parts_of_the_file_are_where_processes_of_other_versions_read_and_write_them() -> None:
    assert (state.HEADER.size, state.SIZE) == (100, 360)
    assert (state.BUSY_SINCE_AT, state.TARGET_AT, state.COUNT_AT) == (16, 68, 356)


def test_a_file_without_the_room_for_a_reason_is_read_and_has_none() -> None:
    parsed = state.parse(file(running=b"me")[: state.HEADER.size])
    assert parsed is not None
    assert (parsed.running, parsed.farewell, parsed.execution_count) == ("me", "", 0)


@pytest.mark.parametrize(("executions", "believed"), [(2**53, True), (2**53 + 1, False), (2**64 - 1, False)])
def test_a_number_of_executions_that_no_record_can_have_gives_no_state(executions: int, believed: bool) -> None:
    assert (state.parse(file(executions=executions)) is not None) is believed


def test_what_follows_the_state_is_not_read() -> None:
    parsed = state.parse(file() + b"more")
    assert parsed is not None
    assert parsed.running == "abc"


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf, -1.0, 253_402_300_800.0, 1e300])
def test_a_time_that_cannot_be_written_as_a_date_gives_no_state(strange: float) -> None:
    assert state.parse(file(busy_since=strange)) is None
    assert state.parse(file(last_used=strange)) is None


def test_the_times_never_and_the_last_second_of_the_year_9999_are_times() -> None:
    assert state.parse(file(busy_since=0.0, last_used=253_402_300_799.0)) is not None


@untimed
@given(st.binary(max_size=2 * state.SIZE) | st.binary(min_size=state.SIZE).map(lambda rest: state.MAGIC + rest))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    parsed = state.parse(data)
    assert parsed is None or data.startswith(state.MAGIC)


@untimed
@given(st.binary(max_size=32))
def test_any_bytes_in_the_place_of_the_running_execution_can_be_read(running: bytes) -> None:
    parsed = state.parse(file(running=running))
    assert parsed is not None
    assert len(parsed.running) <= 32


@untimed
@given(any_text)
def test_an_execution_to_interrupt_takes_exactly_its_place_in_the_file(execution_id: str) -> None:
    written = bytearray(file(running=b"abc"))
    aimed_at = state.target(execution_id)
    written[state.TARGET_AT : state.TARGET_AT + len(aimed_at)] = aimed_at
    assert len(aimed_at) == 32
    assert len(written) == state.SIZE
    parsed = state.parse(bytes(written))
    assert parsed is not None
    assert (parsed.executions, parsed.running) == (3, "abc")


@untimed
@given(any_text)
def test_why_a_kernel_ended_is_read_as_it_said_it_without_what_does_not_print(reason: str) -> None:
    parsed = state.parse(file()[: state.HEADER.size] + state.farewell(reason))
    assert parsed is not None
    said = reason.encode("utf-8", "replace").decode().rstrip("\0")
    assert parsed.farewell == "".join(character if character.isprintable() else "?" for character in said)


def test_a_long_reason_is_cut_to_its_room_and_never_in_the_middle_of_a_character() -> None:
    parsed = state.parse(file()[: state.HEADER.size] + state.farewell("é" * 1000))
    assert parsed is not None
    assert parsed.farewell == "é" * (state.FAREWELL // 2)


def test_any_bytes_in_the_place_of_the_reason_are_shown_harmlessly() -> None:
    parsed = state.parse(file(farewell=b"\x1b[2J\xff\n" + "\u202e".encode()))
    assert parsed is not None
    assert parsed.farewell == "?[2J??"


def test_an_id_of_all_its_room_stands_in_the_file_whole() -> None:
    assert state.target("0123456789abcdef" * 2) == b"0123456789abcdef" * 2
    assert state.target("0123456789abcdef" * 2 + "x") == b"0123456789abcdef" * 2
    assert state.target("ab") == b"ab" + bytes(30)
