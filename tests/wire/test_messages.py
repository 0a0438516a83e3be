"""Messages as values: equality, no hash, a repr that stays short."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.support.strategies import messages, untimed

from kernelbox.wire import _messages as m


def test_messages_are_equal_when_kind_and_every_field_are() -> None:
    assert m.Clear("a", True) == m.Clear("a", True)
    assert m.Clear("a", True) != m.Clear("b", True)
    assert m.Clear("a", True) != m.Clear("a", False)
    assert m.Farewell("x") != m.Refused("x")
    assert m.Farewell("x") != "x"


def test_what_a_message_does_not_say_is_the_usual() -> None:
    plain = m.Execute("i", "c")
    assert plain.store_history
    assert not any((plain.silent, plain.text_limit, plain.approve_shell, plain.shell_escape_only, plain.restore_cwd))
    assert not any((plain.report_changes, plain.allow_stdin, plain.key))
    assert m.Interrupt() == m.Interrupt("", harder=False, tell=False)
    assert not m.Display("i", "display_data", {}, {}).cut
    done, spawn = m.Done("i", "ok"), m.Spawn("i", "d", "c", 18)
    assert not any(
        (done.interrupted, done.cut, spawn.descriptors, spawn.is_sandboxed, spawn.is_guarded, spawn.idle_timeout)
    )


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
