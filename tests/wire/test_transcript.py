"""The transcript: outputs in order, merged, replaced and cleared as a notebook does, and never without bound."""

from __future__ import annotations

import base64
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells import kept_bytes
from tests.support.strategies import any_text, untimed

from kernelbox.wire._messages import Clear, Display, Output
from kernelbox.wire._output_limit import bound
from kernelbox.wire._results import ErrorInfo, OutputItem
from kernelbox.wire.results._transcript import Transcript

MEGABYTE = 1024 * 1024

# What an execution may do, as hypothesis sees it.
writes = st.tuples(st.sampled_from(["stdout", "stderr"]), st.text("ab \n", max_size=8))
displays = st.tuples(st.just("display"), st.text("ab \n", max_size=8))


def show(
    transcript: Transcript,
    text: str | None = None,
    *,
    kind: str = "display_data",
    display_id: str = "",
    cut: bool = False,
    blobs: dict[str, bytes] | None = None,
    **data: Any,
) -> OutputItem:
    bundle = {mime.replace("_", "/"): value for mime, value in data.items()}
    if text is not None:
        bundle["text/plain"] = text
    return transcript.add_display(Display("a", kind, bundle, {}, display_id, None, cut, "", blobs or {}))


def write(transcript: Transcript, text: str, name: str = "stdout") -> OutputItem:
    return transcript.add_output(Output("a", name, text))


def outline(transcript: Transcript) -> list[tuple[str, str | None]]:
    return [(item.name or item.kind, item.text) for item in transcript.items]


# -- order and merging -----------------------------------------------------------------------------------------


def test_nothing_written_is_nothing_shown() -> None:
    transcript = Transcript(1000)
    assert (transcript.text, transcript.items, transcript.return_value) == ("", [], None)
    assert (transcript.stdout.text, transcript.stderr.text) == ("", "")
    assert transcript.truncated is False


def test_outputs_are_kept_in_the_order_they_came() -> None:
    transcript = Transcript(1000)
    write(transcript, "one\n")
    show(transcript, "two")
    write(transcript, "three\n", "stderr")
    show(transcript, "four", kind="execute_result")
    transcript.add_error(ErrorInfo("Five", "5"), by_cell=True)
    assert outline(transcript) == [
        ("stdout", "one\n"),
        ("display_data", "two"),
        ("stderr", "three\n"),
        ("execute_result", "four"),
        ("error", "Five: 5"),
    ]
    assert transcript.text == "one\ntwo\nthree\nfour\nFive: 5"


def test_text_written_to_one_stream_in_pieces_is_one_output() -> None:
    transcript = Transcript(1000)
    for piece in ("a", "", "b\n", "c"):
        write(transcript, piece)
    assert outline(transcript) == [("stdout", "ab\nc")]


@pytest.mark.parametrize("between", ["stream", "display", "error"])
def test_text_is_not_merged_across_what_came_between(between: str) -> None:
    transcript = Transcript(1000)
    write(transcript, "a")
    match between:
        case "stream":
            write(transcript, "-", "stderr")
        case "display":
            show(transcript, "-")
        case _:
            transcript.add_error(ErrorInfo("E", "-"), by_cell=True)
    write(transcript, "b")
    assert [text for _, text in outline(transcript)] == ["a", "E: -" if between == "error" else "-", "b"]
    assert transcript.stdout.text == "ab"


def test_each_stream_is_also_kept_by_itself() -> None:
    transcript = Transcript(1000)
    for piece, name in (("a", "stdout"), ("x", "stderr"), ("b", "stdout"), ("y", "stderr")):
        write(transcript, piece, name)
    assert (transcript.stdout.text, transcript.stderr.text) == ("ab", "xy")


@untimed
@given(st.lists(writes | displays, max_size=12), st.integers(0, 12))
def test_looking_in_between_changes_nothing(steps: list[tuple[str, str]], when: int) -> None:
    watched, unwatched = Transcript(50), Transcript(50)
    for number, step in enumerate(steps):
        repeat(watched, step)
        repeat(unwatched, step)
        if number == when:
            first_look = Transcript(50)
            for earlier in steps[: number + 1]:
                repeat(first_look, earlier)
            assert watched.items is not watched.items
            assert watched.truncated is first_look.truncated
            assert watched.text == first_look.text
    assert outline(watched) == outline(unwatched)
    assert watched.truncated is unwatched.truncated
    assert watched.text == unwatched.text


def repeat(transcript: Transcript, step: tuple[str, str]) -> None:
    name, text = step
    show(transcript, text) if name == "display" else write(transcript, text, name)


def test_written_text_comes_back_as_an_event_piece_by_piece() -> None:
    transcript = Transcript(10)
    write(transcript, "a")
    event = write(transcript, "b" * 100, "stderr")
    assert event == OutputItem("stream", text="b" * 100, name="stderr")


def test_a_display_comes_back_as_an_event() -> None:
    message = Display("a", "execute_result", {"text/plain": "x", "a/b": [1]}, {"a/b": {"m": 1}}, "d", 3)
    event = Transcript(1000).add_display(message)
    assert event == OutputItem("execute_result", "x", None, {"text/plain": "x", "a/b": [1]}, {"a/b": {"m": 1}}, "d")


def test_the_value_of_the_last_expression_is_the_return_value() -> None:
    transcript = Transcript(1000)
    show(transcript, "shown")
    assert transcript.return_value is None
    show(transcript, "42", kind="execute_result")
    show(transcript, "shown after")
    assert transcript.return_value == "42"


@pytest.mark.parametrize("plain", [None, 5, ["x"], {"x": "y"}])
def test_plain_text_that_is_no_text_is_not_read_as_text(plain: Any) -> None:
    transcript = Transcript(1000)
    event = transcript.add_display(Display("a", "execute_result", {"text/plain": plain}, {}))
    assert event.text is None
    assert event.data == {"text/plain": plain}
    assert (transcript.text, transcript.return_value) == ("", None)


@untimed
@given(any_text, any_text)
def test_whatever_a_display_holds_can_be_written_to_a_file(plain: str, markup: str) -> None:
    transcript = Transcript(1000)
    event = show(transcript, plain, kind="execute_result", text_html=markup)
    for text in (event.text, event.data["text/html"], transcript.text, transcript.return_value):
        assert text is not None
        text.encode("utf-8")
    assert event.text == plain.encode("utf-8", "backslashreplace").decode()


# -- text ------------------------------------------------------------------------------------------------------


def read(*steps: tuple[str, str]) -> str:
    transcript = Transcript(0)
    for name, text in steps:
        show(transcript, text) if name == "display" else write(transcript, text, name)
    return transcript.text


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("stdout", "  indented\n\tmore\n")], "  indented\n\tmore"),
        ([("stdout", "\n\nafter blank lines")], "\n\nafter blank lines"),
        ([("stdout", "a \n\n \t\n")], "a"),
        ([("stdout", " \n ")], ""),
        ([("stdout", "a"), ("stderr", "b"), ("stdout", "c\n")], "abc"),
        ([("stdout", "a"), ("display", "D")], "a\nD"),
        ([("stdout", "a\n"), ("display", "D")], "a\nD"),
        ([("display", "D"), ("stdout", "a")], "D\na"),
        ([("display", "D\n"), ("stdout", "a")], "D\na"),
        ([("display", "D\n\n\n"), ("stdout", "a")], "D\na"),
        ([("display", "D"), ("stdout", "\na")], "D\n\na"),
        ([("display", "  D")], "  D"),
        ([("display", "\nD")], "\nD"),
        ([("display", "D"), ("display", "E")], "D\nE"),
        ([("display", ""), ("display", "E")], "E"),
        ([("stdout", "a"), ("display", ""), ("stdout", "b")], "ab"),
        ([("stdout", "a"), ("stdout", ""), ("display", "D")], "a\nD"),
        ([("stdout", "a\n"), ("stdout", ""), ("display", "D")], "a\nD"),
    ],
)
def test_text_keeps_blanks_in_front_and_gives_displays_lines_of_their_own(
    steps: list[tuple[str, str]], expected: str
) -> None:
    assert read(*steps) == expected


def test_an_error_stands_on_lines_of_its_own() -> None:
    transcript = Transcript(0)
    write(transcript, "working...")
    transcript.add_error(ErrorInfo("ValueError", "no", ["Traceback", "ValueError: no"]), by_cell=True)
    assert transcript.text == "working...\nTraceback\nValueError: no"


def test_a_traceback_that_a_cell_shows_and_goes_on_is_an_error_in_its_place() -> None:
    transcript = Transcript(0)
    write(transcript, "before")
    show(transcript, "Traceback\nValueError: no", kind="error")
    write(transcript, "after")
    assert [item.kind for item in transcript.items] == ["stream", "error", "stream"]
    assert transcript.text == "before\nTraceback\nValueError: no\nafter"


@pytest.mark.parametrize(
    ("bundle", "text"),
    [
        ({"text/plain": "<a.Markdown object>", "text/markdown": "# é"}, "# é"),
        ({"text/plain": "<a.Math object at 0x7f>", "text/latex": "$x$"}, "$x$"),
        ({"text/plain": "<a.JSON object>", "application/json": {"é": [1]}}, '{"é": [1]}'),
        ({"text/plain": "<a.JSON object>", "application/json": ["\ud800"]}, r'["\ud800"]'),
        ({"text/markdown": "# a"}, "# a"),
        ({"text/plain": "x**2", "text/latex": "$x^2$"}, "x**2"),
        ({"text/plain": "<a>\n</a object>", "text/markdown": "# a"}, "<a>\n</a object>"),
        ({"text/plain": "<a.HTML object>", "text/html": "<b>a</b>"}, "<a.HTML object>"),
        ({"text/plain": "<a object>", "text/markdown": ["# a"]}, "<a object>"),
    ],
)
def test_text_has_the_source_of_a_display_whose_plain_text_says_only_that_it_is_an_object(
    bundle: dict[str, Any], text: str
) -> None:
    transcript = Transcript(0)
    event = transcript.add_display(Display("1", "display_data", bundle, {}))
    assert (transcript.text, event.text) == (text, bundle.get("text/plain"))


def test_a_display_without_text_leaves_none() -> None:
    transcript = Transcript(0)
    write(transcript, "a")
    show(transcript, text_html="<b>")
    write(transcript, "b")
    assert transcript.text == "ab"


@untimed
@given(st.lists(writes, max_size=20), st.integers(0, 200))
def test_text_of_streams_alone_is_what_a_terminal_would_have_shown(steps: list[tuple[str, str]], limit: int) -> None:
    transcript = Transcript(limit)
    for name, text in steps:
        write(transcript, text, name)
    assert transcript.text == bound("".join(text for _, text in steps), limit).rstrip()
    for stream in ("stdout", "stderr"):
        collected = transcript.stdout if stream == "stdout" else transcript.stderr
        assert collected.text == bound("".join(text for name, text in steps if name == stream), limit)


@untimed
@given(st.lists(writes | displays, max_size=20), st.just(0) | st.integers(8, 100))
def test_text_is_cut_as_a_whole(steps: list[tuple[str, str]], limit: int) -> None:
    transcript, whole = Transcript(limit), ""
    for name, text in steps:
        if name != "display":
            write(transcript, text, name)
            whole += text
        else:
            show(transcript, text)
            whole += ("\n" if text and whole and whole[-1] != "\n" else "") + (text and text.rstrip("\n") + "\n")
    assert transcript.text == bound(whole, limit).rstrip()
    assert transcript.truncated == (0 < limit < len(whole))


def test_what_was_cut_is_counted_once_though_more_came_after() -> None:
    transcript = Transcript(1000)
    write(transcript, "x" * 1_000_000)
    transcript.add_error(ErrorInfo("ValueError", "no"), by_cell=True)
    head, _, rest = transcript.text.partition("\n[… ")
    count, _, tail = rest.partition(" characters cut …]\n")
    assert int(count.replace(",", "")) == len("x" * 1_000_000 + "\nValueError: no\n") - len(head) - len(tail + "\n")
    assert transcript.text.endswith("ValueError: no")
    assert len(transcript.text) <= 1000


# -- bounds ----------------------------------------------------------------------------------------------------


def test_an_output_above_the_limit_is_cut_everywhere_it_is_kept_and_said_to_be() -> None:
    transcript = Transcript(1000)
    truncated = []
    for size in (1000, 1):
        write(transcript, "x" * size)
        truncated.append(transcript.truncated)
    assert truncated == [False, True]
    (item,) = transcript.items
    for text in (transcript.text, transcript.stdout.text, item.text):
        assert text is not None
        assert len(text) <= 1000
        assert "characters cut" in text


@pytest.mark.parametrize("kind", ["execute_result", "display_data", "error", "updated"])
def test_text_says_once_how_much_of_a_long_output_was_cut(kind: str) -> None:
    transcript, long = Transcript(1000), "x" * 5000
    write(transcript, "begun\n")
    if kind == "error":
        transcript.add_error(ErrorInfo("E", "long", [bound(long, 1000)]), by_cell=True)  # the guest cuts it
    elif kind == "updated":
        show(transcript, "short", display_id="d")
        show(transcript, long, kind="update_display_data", display_id="d")
    else:
        show(transcript, long, kind=kind)
    assert transcript.text == bound(f"begun\n{long}\n", 1000).rstrip()


def test_error_output_above_the_limit_is_said_to_be_cut_too() -> None:
    transcript = Transcript(1000)
    write(transcript, "x" * 1001, "stderr")
    assert transcript.truncated


def test_outputs_that_are_too_long_only_together_are_said_to_be_cut() -> None:
    transcript = Transcript(1000)
    truncated = []
    for name in ("stdout", "stderr"):
        write(transcript, "x" * 600, name)
        truncated.append(transcript.truncated)
    assert truncated == [False, True]
    assert transcript.stdout.cut == transcript.stderr.cut == 0


def test_a_display_that_the_guest_has_cut_counts_as_cut() -> None:
    transcript = Transcript(1000)
    show(transcript, "x", cut=True)
    show(transcript, "y")
    assert transcript.truncated


def test_plain_text_that_the_guest_has_not_cut_is_cut_here() -> None:
    transcript = Transcript(1000)
    event = show(transcript, "x" * 1001, kind="execute_result")
    (item,) = transcript.items
    for text in (event.text, event.data["text/plain"], item.text, item.data["text/plain"]):
        assert text == bound("x" * 1001, 1000)
    assert transcript.return_value == "x" * 1001
    assert transcript.truncated


def test_of_ten_thousand_displays_the_first_and_the_last_are_kept() -> None:
    transcript = Transcript(0)
    events = [show(transcript, str(number)) for number in range(10_000)]
    assert [event.text for event in events] == [str(number) for number in range(10_000)]
    items = transcript.items
    assert [item.text for item in items[:500]] == [str(number) for number in range(500)]
    assert items[500] == OutputItem("stream", text="\n[… 9,000 outputs cut …]\n", name="stderr")
    assert [item.text for item in items[501:]] == [str(number) for number in range(9_500, 10_000)]
    assert transcript.truncated


@pytest.mark.parametrize(("count", "kept", "truncated"), [(999, 999, False), (1000, 1000, False), (1001, 1001, True)])
def test_outputs_are_dropped_only_when_there_are_more_than_a_thousand(count: int, kept: int, truncated: bool) -> None:
    transcript = Transcript(0)
    for number in range(count):
        show(transcript, str(number))
    assert len(transcript.items) == kept
    assert ("[… 1 outputs cut …]" in (transcript.items[500].text or "")) == truncated
    assert transcript.truncated == truncated


def test_text_loses_nothing_to_the_number_of_outputs() -> None:
    transcript = Transcript(100_000)
    for number in range(5_000):
        write(transcript, f"{number}\n", ("stdout", "stderr")[number % 2])
    assert transcript.text == "\n".join(map(str, range(5_000)))
    assert len(transcript.items) == 1001


def test_the_notice_of_dropped_outputs_stands_on_a_line_of_its_own() -> None:
    transcript = Transcript(0)
    for number in range(1_002):
        write(transcript, str(number), ("stdout", "stderr")[number % 2])
    show(transcript, "before", display_id="d")
    show(transcript, "after", kind="update_display_data", display_id="d")
    assert "499\n[… 3 outputs cut …]\n503" in transcript.text


def test_memory_does_not_grow_with_what_is_shown_and_written() -> None:
    transcript = Transcript(1000)
    tracemalloc.start()
    try:
        for number in range(4_000):
            write(transcript, "x" * 10_000, ("stdout", "stderr")[number % 2])
            show(transcript, "y" * 10_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * MEGABYTE  # a thousand outputs, a thousand characters each, of two bytes because of the “…”


# -- pictures --------------------------------------------------------------------------------------------------


def test_pictures_are_kept_in_base64_beside_the_text() -> None:
    transcript = Transcript(1000)
    event = show(transcript, "<Figure>", blobs={"image/png": b"\x89PNG\x00"})
    data = {"text/plain": "<Figure>", "image/png": base64.b64encode(b"\x89PNG\x00").decode()}
    assert event.data == data
    assert [item.data for item in transcript.items] == [data]
    assert not transcript.truncated


def kept_pictures(transcript: Transcript) -> list[int]:
    return [number for number, item in enumerate(transcript.items) if "image/png" in item.data]


def test_pictures_beyond_the_room_for_them_are_events_but_not_kept() -> None:
    transcript = Transcript(1000)
    picture = bytes(12 * MEGABYTE)  # 16 in base64, of 64 with all else
    for number in range(5):
        event = show(transcript, str(number), blobs={"image/png": picture})
        assert len(event.data["image/png"]) == 16 * MEGABYTE
        assert transcript.truncated == (number >= 3)
    assert kept_pictures(transcript) == [0, 1, 2]
    assert [item.text for item in transcript.items] == ["0", "1", "2", "3", "4"]
    show(transcript, "small", blobs={"image/png": b""})
    assert kept_pictures(transcript) == [0, 1, 2, 5]


def test_a_picture_as_large_as_the_guest_sends_is_kept() -> None:
    transcript = Transcript(1000)
    show(transcript, blobs={"image/png": bytes(32 * MEGABYTE)})
    assert kept_pictures(transcript) == [0]
    assert not transcript.truncated


def test_markup_takes_of_the_same_room() -> None:
    transcript = Transcript(1000)
    markup = "x" * (25 * MEGABYTE)
    for _ in range(3):
        event = show(transcript, "plain", text_html=markup)
        assert event.data["text/html"] is markup
    assert [sorted(item.data) for item in transcript.items] == [
        ["text/html", "text/plain"],
        ["text/html", "text/plain"],
        ["text/plain"],
    ]
    assert transcript.truncated


def test_a_picture_that_replaces_another_takes_its_room() -> None:
    transcript = Transcript(1000)
    picture = bytes(20 * MEGABYTE)
    show(transcript, "0", display_id="d", blobs={"image/png": picture})
    for number in range(1, 5):
        show(transcript, str(number), kind="update_display_data", display_id="d", blobs={"image/png": picture})
    assert kept_pictures(transcript) == [0]
    assert transcript.text == "4"
    assert not transcript.truncated


def test_a_picture_that_is_dropped_gives_its_room_back() -> None:
    transcript = Transcript(1000)
    for _ in range(500):
        show(transcript, "x")
    show(transcript, "large", blobs={"image/png": bytes(30 * MEGABYTE)})
    for _ in range(499):
        show(transcript, "x")
    assert kept_pictures(transcript) == [500]
    show(transcript, "last", blobs={"image/png": bytes(30 * MEGABYTE)})
    assert kept_pictures(transcript) == [1000]


def test_clearing_gives_all_room_back() -> None:
    transcript = Transcript(1000)
    for _ in range(3):
        show(transcript, blobs={"image/png": bytes(30 * MEGABYTE)})
        transcript.clear(Clear("a", False))
    show(transcript, blobs={"image/png": bytes(30 * MEGABYTE)})
    assert kept_pictures(transcript) == [0]
    assert not transcript.truncated


EMOJI = "\N{GRINNING FACE}"


def flood(transcript: Transcript, what: str) -> None:
    match what:
        case "20 pictures of 20 MB":
            picture = bytes(20 * MEGABYTE)
            for number in range(20):
                show(transcript, str(number), blobs={"image/png": picture})
        case "200 displays of 2 M emoji":
            text = EMOJI * 2_000_000
            for _ in range(200):
                show(transcript, text)
        case "200 markups of 2 M emoji":
            text = EMOJI * 2_000_000
            for _ in range(200):
                show(transcript, text_html=text)
        case "200 streams of 2 M emoji":
            text = EMOJI * 2_000_000
            for number in range(200):
                write(transcript, text, ("stdout", "stderr")[number % 2])
        case "1,500 streams of one character":
            write(transcript, "x" * 2_000_000)
            for number in range(1_500):
                write(transcript, EMOJI, ("stdout", "stderr")[number % 2])
        case "2,000 long ids and much metadata":
            for number in range(2_000):
                metadata = {EMOJI * 100_000: [number, {}]}
                transcript.add_display(Display("a", "display_data", {}, metadata, f"{number:04}" + EMOJI * 996))
        case "JSON of many small parts":
            for number in range(100):
                show(transcript, a_b=[{str(part): [part / 7]} for part in range(10_000)], text_plain=str(number))


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        "20 pictures of 20 MB",
        "200 displays of 2 M emoji",
        "200 markups of 2 M emoji",
        "200 streams of 2 M emoji",
        "1,500 streams of one character",
        "2,000 long ids and much metadata",
        "JSON of many small parts",
    ],
)
def test_the_outputs_of_a_result_take_at_most_64_mb(what: str) -> None:
    transcript = Transcript(2_000_000)
    flood(transcript, what)
    assert kept_bytes(transcript.items) <= 64 * MEGABYTE
    assert transcript.truncated
    for text in (transcript.text, transcript.stdout.text, transcript.stderr.text):
        assert len(text) <= 2_000_000


def test_what_is_left_out_for_want_of_room_still_comes_as_an_event_and_in_the_text() -> None:
    transcript = Transcript(2_000_000)
    flood(transcript, "200 displays of 2 M emoji")
    event = show(transcript, "last" * 400_000, text_html="<b>" * 500_000)
    assert (len(event.text or ""), len(event.data["text/html"])) == (1_600_000, 1_500_000)
    assert transcript.text.endswith("last")
    assert kept_bytes(transcript.items) <= 64 * MEGABYTE


def test_without_a_limit_all_that_is_written_is_kept_and_what_is_shown_is_bounded() -> None:
    transcript = Transcript(0)
    for number in range(2):
        write(transcript, "x" * (40 * MEGABYTE), ("stdout", "stderr")[number])
    assert sum(len(item.text or "") for item in transcript.items) == 80 * MEGABYTE
    assert not transcript.truncated
    transcript.clear(Clear("a", False))
    flood(transcript, "20 pictures of 20 MB")
    assert kept_bytes(transcript.items) <= 64 * MEGABYTE


def test_an_update_that_does_not_fit_leaves_the_display_without_what_was_there() -> None:
    transcript = Transcript(1000)
    show(transcript, "old", display_id="d", text_html="<old>")
    show(transcript, "large", text_html="x" * (50 * MEGABYTE))
    show(transcript, "new", kind="update_display_data", display_id="d", text_html="y" * (30 * MEGABYTE))
    assert transcript.items[0].data == {"text/plain": "new"}
    assert transcript.truncated


# -- update_display --------------------------------------------------------------------------------------------


def test_an_update_changes_the_display_in_its_place() -> None:
    transcript = Transcript(1000)
    write(transcript, "before\n")
    show(transcript, "10 %", display_id="bar", text_html="<i>10</i>")
    write(transcript, "after\n")
    message = Display("a", "update_display_data", {"text/plain": "100 %"}, {"text/plain": {"m": 1}}, "bar")
    event = transcript.add_display(message)
    assert (event.kind, event.text, event.display_id) == ("update_display_data", "100 %", "bar")
    assert outline(transcript) == [("stdout", "before\n"), ("display_data", "100 %"), ("stdout", "after\n")]
    assert transcript.items[1].data == {"text/plain": "100 %"}
    assert transcript.items[1].metadata == {"text/plain": {"m": 1}}
    assert transcript.text == "before\n100 %\nafter"


def test_text_written_after_an_update_follows_it() -> None:
    transcript = Transcript(1000)
    show(transcript, "old", display_id="d")
    show(transcript, "new", kind="update_display_data", display_id="d")
    write(transcript, "a")
    assert transcript.text == "new\na"
    write(transcript, "b")
    show(transcript, "newer", kind="update_display_data", display_id="d")
    assert transcript.text == "newer\nab"
    assert outline(transcript) == [("display_data", "newer"), ("stdout", "ab")]


def test_an_update_changes_every_display_with_its_id_and_no_other() -> None:
    transcript = Transcript(1000)
    for text, display_id in (("one", "d"), ("two", "other"), ("three", ""), ("four", "d")):
        show(transcript, text, display_id=display_id)
    show(transcript, "new", kind="update_display_data", display_id="d")
    assert [text for _, text in outline(transcript)] == ["new", "two", "three", "new"]


def test_an_update_of_something_unknown_is_shown_once_and_then_updated() -> None:
    transcript = Transcript(1000)
    show(transcript, "one", kind="update_display_data", display_id="of an earlier cell")
    show(transcript, "two", kind="update_display_data", display_id="of an earlier cell")
    assert outline(transcript) == [("update_display_data", "two")]
    assert transcript.text == "two"


def test_an_update_without_an_id_changes_nothing_else() -> None:
    transcript = Transcript(1000)
    write(transcript, "written\n")
    show(transcript, "shown")
    show(transcript, "update", kind="update_display_data")
    assert [text for _, text in outline(transcript)] == ["written\n", "shown", "update"]
    assert transcript.text == "written\nshown\nupdate"


def test_a_display_shown_again_under_its_id_is_a_second_display() -> None:
    transcript = Transcript(1000)
    show(transcript, "one", display_id="d")
    show(transcript, "two", display_id="d")
    assert [text for _, text in outline(transcript)] == ["one", "two"]


def test_an_update_leaves_events_that_were_given_out_alone() -> None:
    transcript = Transcript(1000)
    event = show(transcript, "old", display_id="d", text_html="<old>")
    show(transcript, "new", kind="update_display_data", display_id="d", text_html="<new>")
    assert (event.text, event.data) == ("old", {"text/html": "<old>", "text/plain": "old"})


def test_the_last_of_many_displays_can_be_updated() -> None:
    transcript = Transcript(0)
    for number in range(2_000):
        show(transcript, str(number), display_id=str(number))
    show(transcript, "new", kind="update_display_data", display_id="1999")
    assert transcript.items[-1].text == "new"
    assert len(transcript.items) == 1001


def test_many_updates_of_one_display_are_one_output() -> None:
    transcript = Transcript(1000)
    show(transcript, "0", display_id="d")
    for number in range(3_000):
        show(transcript, str(number), kind="update_display_data", display_id="d")
    assert outline(transcript) == [("display_data", "2999")]
    assert not transcript.truncated


# -- clear_output ----------------------------------------------------------------------------------------------


def full() -> Transcript:
    transcript = Transcript(10)
    write(transcript, "x" * 100)
    write(transcript, "y" * 100, "stderr")
    show(transcript, "z", kind="execute_result", cut=True)
    return transcript


def assert_empty(transcript: Transcript) -> None:
    assert (transcript.text, transcript.items, transcript.return_value) == ("", [], None)
    assert (transcript.stdout.text, transcript.stderr.text) == ("", "")
    assert not transcript.truncated


def test_clearing_forgets_everything_at_once() -> None:
    transcript = full()
    assert transcript.clear(Clear("a", False)) == OutputItem("clear_output", metadata={"wait": False})
    assert_empty(transcript)


def test_clearing_with_wait_forgets_nothing_until_the_next_output() -> None:
    transcript, untouched = full(), full()
    assert transcript.clear(Clear("a", True)) == OutputItem("clear_output", metadata={"wait": True})
    assert transcript.items == untouched.items
    assert transcript.text == untouched.text
    write(transcript, "new")
    assert outline(transcript) == [("stdout", "new")]
    assert transcript.text == "new"
    write(transcript, "er")
    assert outline(transcript) == [("stdout", "newer")]


def test_a_display_too_is_an_output_that_a_waiting_clear_waits_for() -> None:
    transcript = full()
    transcript.clear(Clear("a", True))
    show(transcript, "new")
    show(transcript, "er")
    assert outline(transcript) == [("display_data", "new"), ("display_data", "er")]


def test_a_progress_display_that_clears_and_prints_keeps_only_the_last_line() -> None:
    transcript = Transcript(1000)
    for number in range(100):
        transcript.clear(Clear("a", True))
        write(transcript, f"{number} %\n")
    assert transcript.text == "99 %"
    assert transcript.stdout.text == "99 %\n"


@pytest.mark.parametrize(("by_cell", "text"), [(True, "ValueError: no"), (False, "progress\nValueError: no")])
def test_an_error_is_such_an_output_if_the_cell_showed_it(by_cell: bool, text: str) -> None:
    transcript = Transcript(1000)
    write(transcript, "progress\n")
    transcript.clear(Clear("a", True))
    transcript.add_error(ErrorInfo("ValueError", "no"), by_cell=by_cell)
    assert transcript.text == text


def test_a_display_from_before_a_clear_is_not_there_to_be_updated() -> None:
    transcript = Transcript(1000)
    show(transcript, "old", display_id="d")
    transcript.clear(Clear("a", False))
    show(transcript, "new", kind="update_display_data", display_id="d")
    assert outline(transcript) == [("update_display_data", "new")]


def test_what_was_dropped_before_a_clear_is_not_counted_after() -> None:
    transcript = Transcript(0)
    for number in range(1_500):
        show(transcript, str(number))
    transcript.clear(Clear("a", False))
    assert_empty(transcript)


@pytest.mark.parametrize("limit", [0, 10_000_000])
def test_what_is_long_is_put_together_once_and_again_when_there_is_more(limit: int) -> None:
    transcript = Transcript(limit)
    transcript.add_output(Output("1", "stdout", "x" * 2_000_000))
    transcript.add_output(Output("1", "stderr", "y" * 2_000_000))
    before = transcript.is_long
    transcript.add_output(Output("1", "stderr", "z\n"))
    assert (before, transcript.is_long) == (False, True)
    for more in ("", "more\n"):
        transcript.add_output(Output("1", "stderr", more))
        transcript.put_together()
        texts = [transcript.stdout.text, transcript.stderr.text, transcript.text, transcript.items[-1].text]
        again = [transcript.stdout.text, transcript.stderr.text, transcript.text, transcript.items[-1].text]
        assert all(one is other for one, other in zip(texts, again, strict=True))
        assert transcript.stderr.text == transcript.items[-1].text == "y" * 2_000_000 + "z\n" + more
        assert transcript.text == "x" * 2_000_000 + "y" * 2_000_000 + f"z\n{more}".rstrip()
