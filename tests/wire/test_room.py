"""The room that the outputs of a result have, to the byte."""

from __future__ import annotations

import pytest

from kernelbox.wire._messages import Display, Output
from kernelbox.wire.results._transcript import Transcript, weigh

# 64 MiB, of which a thousand outputs take 640 bytes each whatever they hold.
ROOM = 64 * 1024 * 1024 - 1000 * 640

MARKUP = "text/html"


def markup(size: int) -> str:
    """Returns what takes so many bytes as markup."""
    return "x" * (size - weigh(MARKUP) - weigh(""))


def show(transcript: Transcript, size: int, *, kind: str = "display_data", display_id: str = "") -> bool:
    """Shows so many bytes of markup; returns whether the result has any of it as its last output."""
    transcript.add_display(Display("a", kind, {MARKUP: markup(size)}, {}, display_id))
    return bool(transcript.items[-1].data)


def test_a_display_is_kept_that_takes_all_the_room_and_no_byte_more() -> None:
    exact, larger = Transcript(1000), Transcript(1000)
    assert show(exact, ROOM)
    assert not exact.truncated
    assert not show(larger, ROOM + 1)
    assert larger.truncated


@pytest.mark.parametrize(("left", "kept"), [(400, 100), (3, 1), (0, 1)])
def test_text_has_a_quarter_of_the_bytes_that_are_left_as_characters(left: int, kept: int) -> None:
    transcript = Transcript(1000)
    show(transcript, ROOM - left)
    transcript.add_output(Output("a", "stdout", "y" * 150))
    transcript.add_output(Output("a", "stderr", ""))
    assert len(transcript.items[1].text or "") == kept
    assert transcript.stdout.text == "y" * 150
    assert transcript.truncated


def test_the_smallest_limit_holds_for_the_text_of_an_output_too() -> None:
    transcript = Transcript(1)
    transcript.add_output(Output("a", "stdout", "abc"))
    assert [item.text for item in transcript.items] == ["…"]


def test_without_a_limit_text_takes_no_room_of_what_is_shown() -> None:
    transcript = Transcript(0)
    show(transcript, ROOM - 200)
    transcript.add_output(Output("a", "stdout", "y" * 1000))
    assert show(transcript, 200)
    assert not transcript.truncated


def test_with_a_limit_text_takes_of_the_same_room() -> None:
    transcript = Transcript(1000)
    show(transcript, ROOM - 1200)
    transcript.add_output(Output("a", "stdout", "y" * 200))
    assert not show(transcript, 1200 - weigh("y" * 200) + 1)
    assert show(transcript, 1200 - weigh("y" * 200))


@pytest.mark.slow
def test_what_is_updated_again_and_again_has_the_room_that_it_had() -> None:
    transcript = Transcript(1000)
    size = ROOM - weigh("me")
    assert show(transcript, size, display_id="me")
    for _ in range(3):
        assert show(transcript, size, kind="update_display_data", display_id="me")
    assert not show(transcript, size + 1, kind="update_display_data", display_id="me")
