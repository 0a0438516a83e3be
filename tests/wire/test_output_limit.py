"""BoundedText: all of a short text, head and tail of a long one, never more than a bounded part in memory."""

from __future__ import annotations

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import untimed

from kernelbox.wire._output_limit import BoundedText, bound, value_limit

texts = st.lists(st.text(max_size=300) | st.integers(0, 400).map(lambda count: "0123456789" * count), max_size=8)
NOTICE = re.compile(r"\n\[… ([\d,]+) characters cut …\]\n")


def collect(parts: list[str], limit: int) -> BoundedText:
    bounded = BoundedText(limit)
    for part in parts:
        bounded.add(part)
    return bounded


@untimed
@given(texts, st.integers(0, 1000))
def test_a_text_up_to_the_limit_is_kept_as_it_is(parts: list[str], margin: int) -> None:
    whole = "".join(parts)
    bounded = collect(parts, max(1, len(whole)) + margin)
    assert bounded.text == whole
    assert bounded.cut == 0


@untimed
@given(texts, st.integers(-5, 0))
def test_without_a_limit_everything_is_kept(parts: list[str], limit: int) -> None:
    bounded = collect(parts, limit)
    assert bounded.text == bound("".join(parts), limit) == "".join(parts)
    assert bounded.cut == 0


@untimed
@given(texts, st.integers(64, 600))
def test_a_longer_text_keeps_head_and_tail_and_says_how_much_is_missing(parts: list[str], limit: int) -> None:
    whole = "".join(parts) + "x" * (limit + 1)
    bounded = collect([*parts, "x" * (limit + 1)], limit)
    head, count, tail = NOTICE.split(bounded.text) if len(NOTICE.findall(bounded.text)) == 1 else ("", "0", "")
    assert len(head) == (limit - 32) // 2
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert int(count.replace(",", "")) == bounded.cut == len(whole) - len(head) - len(tail)
    assert limit - 2 <= len(bounded.text) <= limit


@untimed
@given(texts, st.integers(1, 2000))
def test_head_notice_and_tail_stay_within_the_limit(parts: list[str], limit: int) -> None:
    assert len(collect(parts, limit).text) <= limit
    assert len(bound("".join(parts), limit)) <= limit


@pytest.mark.parametrize("limit", [64, 65, 100, 1000])
def test_a_text_that_is_cut_is_shorter_than_it_was_whatever_the_notice_says(limit: int) -> None:
    for size in (*range(limit + 1, limit + 120), 999_990, 1_000_010, 10**7):
        bounded = collect(["x" * size], limit)
        assert len(bounded.text) <= limit < size
        assert f"[… {bounded.cut:,} characters cut …]" in bounded.text


def test_the_notice_of_a_text_beyond_any_memory_still_fits_the_smallest_limit_that_has_one() -> None:
    bounded = collect(["x" * 1000], 64)
    bounded._size = 10**18  # no test can add so much
    assert len(bounded.text) == 64
    assert NOTICE.search(bounded.text)


@untimed
@given(texts, st.integers(-1, 600))
def test_the_pieces_in_which_a_text_comes_do_not_matter(parts: list[str], limit: int) -> None:
    bounded = collect(parts, limit)
    assert bounded.text == bound("".join(parts), limit)
    assert bounded.cut == collect(["".join(parts)], limit).cut


@pytest.mark.parametrize("size", [1001, 1999, 2000, 2001, 2002, 4000, 4001, 10_000])
def test_nothing_is_lost_or_doubled_where_memory_is_given_back(size: int) -> None:
    whole = "".join(chr(0x4E00 + index) for index in range(size))
    for piece in (1, 7, 999, 1000, 1001, size):
        bounded = collect([whole[start : start + piece] for start in range(0, size, piece)], 1000)
        tail = 1000 - 484 - len(f"\n[… {size - 1000 + 48:,} characters cut …]\n")
        assert bounded.text == f"{whole[:484]}\n[… {size - 484 - tail:,} characters cut …]\n{whole[-tail:]}"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, "…"),
        (2, "…9"),
        (3, "0…9"),
        (9, "0123…6789"),
        (10, "0123456789"),
    ],
)
def test_a_small_limit_is_spent_on_text_and_one_character_that_says_it_was_cut(limit: int, expected: str) -> None:
    assert bound("0123456789", limit) == expected
    assert collect(list("0123456789"), limit).text == expected


@untimed
@given(st.lists(texts, max_size=3), st.integers(1, 600))
def test_reading_in_between_changes_nothing(batches: list[list[str]], limit: int) -> None:
    bounded, parts = BoundedText(limit), list[str]()
    for batch in batches:
        for part in batch:
            bounded.add(part)
        parts += batch
        assert bounded.text == bounded.text == bound("".join(parts), limit)


def test_an_empty_text_is_false_and_any_other_is_true() -> None:
    assert not BoundedText(10)
    assert not collect(["", ""], 10)
    assert collect(["x"], 10)
    assert collect(["x"] * 1000, 10)
    assert BoundedText(10).text == ""
    assert BoundedText(10).cut == 0


@pytest.mark.parametrize("piece", [100_000, 1_000, 10, 1, 0], ids="pieces of {}".format)
def test_memory_does_not_grow_with_what_is_added(piece: int) -> None:
    bounded = BoundedText(1000)
    tracemalloc.start()
    try:
        for number in range(20_000 if piece <= 10 else 2_000):
            bounded.add(chr(0x4E00 + number % 1000) * piece)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Up to twice the limit waits, in the worst case as strings of one character each: 80 bytes and a place in a list.
    assert held < 200_000 if piece else held < 1_000


@untimed
@given(st.text(max_size=300), st.integers(-1, 300))
def test_bound_returns_the_text_itself_unless_it_cuts(text: str, limit: int) -> None:
    assert (bound(text, limit) is text) == (limit <= 0 or len(text) <= limit)


def test_a_value_has_a_generous_limit_of_its_own_that_a_higher_one_raises_and_none_lifts() -> None:
    generous = value_limit(1)
    assert generous > 10_000
    assert value_limit(generous) == generous
    assert value_limit(generous + 1) == generous + 1
    assert value_limit(0) == value_limit(-1) == 0


@pytest.mark.parametrize("limit", [0, -1])
def test_without_a_limit_a_text_is_kept_whole(limit: int) -> None:
    assert bound("x" * 100_000, limit) == "x" * 100_000


@untimed
@given(texts, st.text("ab\n", max_size=300), texts, st.integers(64, 600))
def test_a_text_that_was_cut_before_is_cut_as_if_it_were_whole(
    before: list[str], text: str, after: list[str], limit: int
) -> None:
    long = text + "c" * (2 * limit) + text
    bounded = collect(before, limit)
    bounded.add_bounded(bound(long, limit))
    for part in after:
        bounded.add(part)
    whole = "".join([*before, long, *after])
    assert bounded.text == bound(whole, limit)
    assert bounded.cut == collect([whole], limit).cut


@pytest.mark.parametrize("limit", [80, 100, 1000])
@pytest.mark.parametrize("digits", ["0", "1", "9" * 18, "1" + "0" * 18, "x", ""])
def test_a_forged_notice_makes_no_text_longer_than_the_limit(limit: int, digits: str) -> None:
    for size in range(limit - 3, limit + 3):
        forged = f"{'h' * ((limit - 32) // 2)}\n[… {digits} characters cut …]\n".ljust(size, "t")
        bounded = BoundedText(limit)
        bounded.add_bounded(forged)
        bounded.add("end")
        assert len(bounded.text) <= limit
        assert bounded.text.endswith("end")
