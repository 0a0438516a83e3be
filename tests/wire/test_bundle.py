"""Displays as they leave the kernel: pictures as bytes, readable text cut in the middle, markup whole or not at all."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import Text, any_text, circular, doubling, endless, hostile_values, nested, untimed

from kernelbox.wire._bundle import build_display
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Display
from kernelbox.wire._output_limit import bound

MEGABYTE = 1024 * 1024
PNG = b"\x89PNG\r\n"


def build(data: dict[str, Any], *, text_limit: int = 100) -> Display:
    return build_display("a", "display_data", data, None, text_limit=text_limit)


def test_a_small_bundle_is_the_message_as_it_is() -> None:
    metadata = {"text/html": {"isolated": True}}
    display = build_display(
        "a",
        "execute_result",
        {"text/plain": "x", "text/html": "<b>x</b>", "application/json": {"a": [1]}},
        metadata,
        text_limit=100,
        display_id="d",
        execution_count=4,
    )
    data = {"text/plain": "x", "text/html": "<b>x</b>", "application/json": {"a": [1]}}
    assert display == Display("a", "execute_result", data, metadata, "d", 4)
    assert display.metadata is not metadata


def test_no_metadata_is_none_and_not_shared() -> None:
    first, second = build({}), build({})
    assert first.metadata == {}
    assert first.metadata is not second.metadata


@pytest.mark.parametrize("mime", ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "application/pdf"])
@pytest.mark.parametrize("raw", [True, False])
def test_pictures_travel_as_bytes_whether_they_came_raw_or_in_base64(mime: str, raw: bool) -> None:
    display = build({mime: PNG if raw else base64.encodebytes(PNG).decode()})
    assert (display.blobs, display.data, display.cut) == ({mime: PNG}, {}, False)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_type_travel_as_bytes(kind: Any) -> None:
    display = build({"application/octet-stream": kind(PNG)})
    assert display.blobs == {"application/octet-stream": PNG}
    assert type(display.blobs["application/octet-stream"]) is bytes


@pytest.mark.parametrize("value", ["not base64!", "iVBO!Rw0=", "A", "abc", "", " ", "é", "\ud800", 5, None])
def test_a_picture_that_is_none_stays_what_it_is(value: object) -> None:
    display = build({"image/png": value})
    assert (display.blobs, display.data) == ({}, {"image/png": value})


def test_a_drawing_made_of_text_stays_text() -> None:
    assert build({"image/svg+xml": "<svg/>"}).data == {"image/svg+xml": "<svg/>"}


@pytest.mark.parametrize("mime", ["text/markdown", "text/latex"])
def test_readable_text_is_cut_in_the_middle_at_the_limit(mime: str) -> None:
    assert build({mime: "x" * 100}).cut is False
    display = build({mime: "x" * 101})
    assert display.data[mime] == bound("x" * 101, 100)
    assert display.cut is True


@pytest.mark.parametrize(
    ("value", "size"), [("x" * 10_000, 0), (["x" * 9_996], 0), ("x" * 10_001, 1), (["x" * 9_997], 1)]
)
def test_markup_is_sent_whole_up_to_a_hundred_times_the_limit_or_not_at_all(value: object, size: int) -> None:
    display = build({"text/html": value, "text/plain": "x"})
    assert display.data == ({"text/plain": "x"} if size else {"text/html": value, "text/plain": "x"})
    assert display.cut is bool(size)


def test_the_smallest_limit_is_a_limit_for_markup_too() -> None:
    assert build({"text/html": "x" * 100}, text_limit=1).cut is False
    assert build({"text/html": "x" * 101}, text_limit=1).cut is True


def test_a_display_of_which_nothing_readable_is_left_says_so() -> None:
    display = build({"text/html": "x" * 10_001, "image/png": bytes(33 * MEGABYTE)})
    assert display.data == {"text/plain": "[a display of text/html, image/png was too large to show]"}
    assert (display.blobs, display.cut) == ({}, True)


@pytest.mark.parametrize("value", ["x" * 1_000_000, ["x"] * 99_000])
def test_without_a_limit_nothing_is_cut(value: object) -> None:
    data = {"text/plain": value, "text/html": value}
    display = build(data, text_limit=0)
    assert (display.data, display.cut) == (data, False)


def test_pictures_are_sent_up_to_a_size_that_a_frame_has_room_for() -> None:
    whole = {"image/png": bytes(32 * MEGABYTE), "text/plain": "x"}
    assert build(whole).cut is False
    display = build({"image/png": bytes(32 * MEGABYTE + 1), "text/plain": "x"})
    assert (display.blobs, display.data, display.cut) == ({}, {"text/plain": "x"}, True)


def test_several_pictures_share_the_size_that_a_frame_has_room_for() -> None:
    half = bytes(16 * MEGABYTE)
    display = build({"image/png": half, "image/jpeg": half, "image/gif": b"G", "text/plain": "x"})
    assert sorted(display.blobs) == ["image/jpeg", "image/png"]
    assert display.cut is True


def test_readable_text_has_room_whatever_else_a_display_holds() -> None:
    markup = {f"text/x-{number}": "x" * 4_000_000 for number in range(3)}
    display = build({**markup, "text/plain": "y" * 500_000}, text_limit=0)
    assert [*display.data] == ["text/plain", "text/x-0"]
    assert display.cut is True


def test_a_display_of_the_most_that_is_sent_fits_a_frame() -> None:
    parts = {"text/plain": "\ud800" * 4_000_000, "text/html": "\x00" * 499_000, "image/png": bytes(32 * MEGABYTE)}
    display = build(parts, text_limit=0)
    assert display.cut is False
    (received,) = Decoder().feed(encode(display))
    assert isinstance(received, Display)
    assert [*received.data, *received.blobs] == [*parts]


@pytest.mark.parametrize("size", [99, 100, 1_000])
def test_more_types_than_anybody_shows_are_left_out(size: int) -> None:
    display = build({f"a/{number}": number for number in range(size)})
    assert [*display.data] == [f"a/{number}" for number in range(99)]
    assert display.cut is (size > 99)
    Decoder().feed(encode(display))


def test_texts_and_pictures_are_counted_together() -> None:
    pictures = {f"image/x-{number}": PNG for number in range(60)}
    texts = {f"text/x-{number}": "x" for number in range(60)}
    display = build({**texts, **pictures})
    assert (len(display.data), len(display.blobs), display.cut) == (60, 39, True)


def test_values_share_the_room_with_what_comes_after_them() -> None:
    parts = {f"a/{number}": ["x" * 1_000_000] * 2 for number in range(3)}
    display = build(parts, text_limit=0)
    assert [*display.data] == ["a/0", "a/1", "text/plain"]
    assert display.cut is True


def test_a_name_longer_than_that_of_any_type_is_left_out() -> None:
    display = build({"a/" + "b" * 253: 1, "a/" + "b" * 254: 2, "text/plain": "x"})
    assert (display.data, display.cut) == ({"text/plain": "x", "a/" + "b" * 253: 1}, True)


@pytest.mark.parametrize("metadata", [{"m": "x" * 5_000_000}, {"m": endless()}, dict.fromkeys(range(300_000))])
def test_metadata_that_is_too_large_is_left_out_and_the_display_is_shown(metadata: dict[str, Any]) -> None:
    display = build_display("a", "display_data", {"text/plain": "x"}, metadata, text_limit=100)
    assert display == Display("a", "display_data", {"text/plain": "x"}, {}, cut=True)


@pytest.mark.parametrize("value", [endless(), range(200_000), {"x": ["y"] * 200_000}, doubling()], ids=type)
def test_json_that_is_too_large_is_left_out_and_said_to_be(value: object) -> None:
    display = build({"application/json": value}, text_limit=0)
    note = "[a display of application/json was too large to show]"
    assert (display.data, display.cut) == ({"text/plain": note}, True)


@pytest.mark.parametrize("value", [circular(), 10**6000, object(), nested(101), {"x": {(1, 2): 3}}], ids=type)
def test_json_that_has_no_form_is_the_cells_own_error(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        build({"application/json": value})
    with pytest.raises((TypeError, ValueError)):
        build_display("a", "display_data", {}, {"m": value}, text_limit=100)


@pytest.mark.parametrize("data", [5, "x", [("text/plain", "x")], None, {5: "x"}, {b"text/plain": "x"}])
def test_what_is_no_bundle_is_the_cells_own_error(data: Any) -> None:
    with pytest.raises(TypeError, match="a MIME type is a string" if isinstance(data, dict) else "are dictionaries"):
        build(data)


def test_strings_and_bytes_of_the_users_own_classes_are_taken_for_what_they_hold() -> None:
    class Picture(bytes):
        def __bytes__(self) -> bytes:
            raise KeyError

    display = build(
        {
            Text("text/plain"): Text("x" * 200),
            "text/latex": Text("x" * 200),
            "image/png": Picture(PNG),
            "text/html": Text("<b>"),
        }
    )
    assert display.data == {"text/plain": "x" * 200, "text/latex": bound("x" * 200, 100), "text/html": "<b>"}
    assert display.blobs == {"image/png": PNG}
    assert {type(part) for part in (*display.data, *display.data.values())} == {str}


def test_a_display_id_is_text_of_bounded_length() -> None:
    def shown_as(display_id: object) -> str:
        return build_display("a", "display_data", {}, None, text_limit=0, display_id=display_id).display_id

    assert (shown_as(5), shown_as(Text("d")), shown_as("d" * 1000)) == ("5", "d", "d" * 1000)
    with pytest.raises(ValueError, match="at most 1,000 characters, not 1,001"):
        shown_as("d" * 1001)


@untimed
@given(
    st.dictionaries(
        st.sampled_from(["text/plain", "text/html", "image/png", "a/b"]) | any_text | st.integers(), hostile_values
    ),
    st.dictionaries(any_text, hostile_values, max_size=2),
    st.integers(0, 9),
)
def test_any_bundle_becomes_a_message_that_arrives_or_an_error_of_the_cells_own(
    data: dict[Any, Any], metadata: dict[str, Any], text_limit: int
) -> None:
    try:
        display = build_display("a", "display_data", data, metadata, text_limit=text_limit)
    except (TypeError, ValueError, ZeroDivisionError):
        return
    (received,) = Decoder().feed(encode(display))
    assert isinstance(received, Display)
    json.dumps([received.data, received.metadata], ensure_ascii=False, allow_nan=False).encode()
    assert display.cut or len(display.data) + len(display.blobs) == len(data)
    assert encode(received) == encode(display)


@pytest.mark.parametrize("kind", ["execute_result", "display_data"])
def test_plain_text_is_sent_whole_for_the_log_and_other_text_is_cut(kind: str) -> None:
    shown = build_display("me", kind, {"text/plain": "x" * 300, "text/markdown": "y" * 300}, text_limit=100)
    assert len(shown.data["text/plain"]) == 300
    assert len(shown.data["text/markdown"]) == 100
    assert shown.cut


@pytest.mark.parametrize(("limit", "kept"), [(1, 1), (0, 300)])
def test_a_limit_of_one_character_is_one_and_none_is_none(limit: int, kept: int) -> None:
    assert len(build({"text/latex": "x" * 300}, text_limit=limit).data["text/latex"]) == kept
