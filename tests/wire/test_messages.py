"""Messages as values: equality, no hash, a repr that stays short."""

from __future__ import annotations

import pytest
from hypothesis import given

from kernelbox.wire import _messages as m

from .strategies import messages, untimed


def test_messages_are_equal_when_kind_and_every_field_are() -> None:
    assert m.Clear("a", True) == m.Clear("a", True)
    assert m.Clear("a", True) != m.Clear("b", True)
    assert m.Clear("a", True) != m.Clear("a", False)
    assert m.Farewell("x") != m.Refused("x")
    assert m.Farewell("x") != "x"


def test_what_a_message_does_not_say_is_the_usual() -> None:
    assert m.Execute("i", "c") == m.Execute("i", "c", "python", False, True, 0, False, False, "", False, False)
    assert m.Interrupt() == m.Interrupt("", False)
    assert m.Display("i", "display_data", {}, {}) == m.Display("i", "display_data", {}, {}, "", None, False, {})
    assert m.Answer("i", 1, True) == m.Answer("i", 1, True, "", "", b"")
    assert m.Spawn("i", "d", "c", 18) == m.Spawn("i", "d", "c", 18, [], [], False, 0.0)
    assert m.Done("i", "ok") == m.Done("i", "ok", None, "", "", [], False, False, None)


def test_a_message_has_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(m.Clear("a", True))


def test_a_message_shows_its_kind_and_fields() -> None:
    assert repr(m.Clear("a", True)) == "Clear(id='a', wait=True)"


@untimed
@given(messages)
def test_every_message_can_be_shown(message: m.Message) -> None:
    assert repr(message).startswith(f"{type(message).__name__}(")


def test_a_long_field_is_shown_in_part() -> None:
    assert len(repr(m.Execute("a", "x" * 10_000))) < 400


def test_a_message_takes_no_fields_that_it_does_not_have() -> None:
    with pytest.raises(AttributeError):
        m.Clear("a", True).extra = 1  # type: ignore[attr-defined]  # this is the point
