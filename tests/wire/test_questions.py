"""Questions and answers that follow from a connection's key, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Answer, Ask
from kernelbox.wire._questions import Questions, fingerprint, number_of, seal_of

KEY = "0123456789abcdef" * 2


def question(count: int = 1, *, key: str = KEY, execution: str = "me", **args: Any) -> Ask:
    return Ask(execution, number_of(key, execution, count), "server", "tool", args)


def test_questions_are_taken_in_their_order_and_no_other() -> None:
    questions = Questions(KEY, "me")
    assert [questions.take(question(count)) for count in (1, 2, 3)] == [True, True, True]


@pytest.mark.parametrize(
    "forged",
    [
        question(2),
        question(0),
        question(key=KEY[::-1]),
        question(execution="other"),
        Ask("me", 1, "server", "tool", {}),
        Ask("me", -1, "server", "tool", {}),
    ],
)
def test_a_question_that_is_not_the_next_is_forged(forged: Ask) -> None:
    assert not Questions(KEY, "me").take(forged)


def test_a_question_is_taken_once() -> None:
    questions = Questions(KEY, "me")
    assert questions.take(question())
    assert not questions.take(question())


@pytest.mark.parametrize(
    "args", [{}, {"cmd": "é\udcff\U0001f600\n"}, {"x": [1.5e300, -0.0, 10**20, None, True, {"y": ""}]}]
)
def test_the_fingerprint_of_a_question_is_the_same_on_both_sides(args: dict[str, Any]) -> None:
    (read,) = Decoder().feed(encode(question(**args)))
    (again,) = Decoder().feed(encode(read))
    assert isinstance(read, Ask)
    assert isinstance(again, Ask)
    questions, answer = Questions(KEY, "me"), Answer("me", read.ask, True)
    assert questions.take(again)
    questions.sign(answer)
    assert answer.fingerprint == fingerprint(KEY, read) != ""


@pytest.mark.parametrize("field", ["id", "ask", "server_name", "tool_name", "tool_args"])
def test_every_part_of_a_question_counts(field: str) -> None:
    other = question(cmd="a")
    setattr(other, field, 7 if field == "ask" else {"cmd": "b"} if field == "tool_args" else "else")
    assert fingerprint(KEY, other) != fingerprint(KEY, question(cmd="a"))
    assert fingerprint(KEY[::-1], question(cmd="a")) != fingerprint(KEY, question(cmd="a"))


def test_an_answer_to_what_was_not_asked_says_nothing() -> None:
    questions, answer = Questions(KEY, "me"), Answer("me", 5, True)
    questions.sign(answer)
    assert answer.fingerprint == ""


def test_a_number_is_hard_to_guess_and_exact_in_json_and_a_fingerprint_has_128_bits() -> None:
    numbers = [number_of(KEY, "me", count) for count in range(50)]
    assert 2**46 < max(numbers) < 2**48
    assert len(fingerprint(KEY, question())) == 32


RUNNER_KEY = b"k" * 64


def sealed(accepted: bool, server: str = "kernelbox", runner_key: bytes = RUNNER_KEY) -> str:
    """Returns the seal of an answer to `ls`."""
    questions = Questions(KEY, "me", runner_key)
    ask = Ask("me", number_of(KEY, "me", 1), server, "shell", {"cmd": "ls", "env": {"B": None, "A": "1"}})
    assert questions.take(ask)
    answer = Answer("me", ask.ask, accepted)
    questions.sign(answer)
    assert answer.fingerprint == fingerprint(KEY, ask)
    return answer.seal


def test_only_a_command_that_is_accepted_gets_a_seal_and_only_where_there_is_a_runner() -> None:
    number = number_of(KEY, "me", 1)
    shown = {"env": {"A": "1", "B": None}, "cmd": "ls"}  # in whatever order
    assert sealed(True) == seal_of(RUNNER_KEY, "me", number, "shell", shown)
    assert sealed(False) == sealed(True, server="server") == sealed(True, runner_key=b"") == ""


def test_a_seal_is_of_all_that_was_asked() -> None:
    seals = [
        seal_of(RUNNER_KEY, "me", 1, "shell", {"cmd": "ls"}),
        seal_of(b"another key", "me", 1, "shell", {"cmd": "ls"}),
        seal_of(RUNNER_KEY, "other", 1, "shell", {"cmd": "ls"}),
        seal_of(RUNNER_KEY, "me", 2, "shell", {"cmd": "ls"}),
        seal_of(RUNNER_KEY, "me", 1, "shell_magic", {"cmd": "ls"}),
        seal_of(RUNNER_KEY, "me", 1, "shell", {"cmd": "ls "}),
        seal_of(RUNNER_KEY, "me", 1, "shell", {"cmd": "ls", "env": {}}),
        seal_of(RUNNER_KEY, "me", 1, "shell", {"cmd": "ls", "env": []}),
        seal_of(RUNNER_KEY, "me", 1, "shell", {"cmd": ["ls"]}),
        seal_of(RUNNER_KEY, "me", 1, "shell", [["cmd", "ls"]]),
    ]
    assert len({len(seal) for seal in seals}) == 1
    assert len(set(seals)) == len(seals)
