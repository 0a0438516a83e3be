"""Approval requests: answered once, and shown so that what a person reads is what was asked."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import untimed

from kernelbox import ApprovalClosed, ApprovalRequest, InvalidInput, SyncApprovalRequest
from kernelbox.core.approvals._requests import Verdict
from kernelbox.wire._messages import Ask


def shell(command: str, **args: object) -> SyncApprovalRequest:
    return SyncApprovalRequest.of(Ask("cell", 1, "kernelbox", "shell", {"cmd": command, **args}))


def test_a_request_is_answered_once() -> None:
    request = shell("ls")
    request.accept()
    for again in (request.accept, request.reject):
        with pytest.raises(ApprovalClosed, match="already accepted"):
            again()
    assert request.verdict == Verdict(True)


def test_a_request_that_is_closed_without_an_answer_is_rejected_with_the_reason() -> None:
    request = shell("ls")
    request.close("no answer within 1 s")
    request.close("again")
    with pytest.raises(ApprovalClosed, match="already rejected: no answer within 1 s"):
        request.accept()
    assert request.verdict == Verdict(False, "no answer within 1 s")


def test_closing_an_answered_request_changes_nothing() -> None:
    request = shell("ls")
    request.accept()
    request.close("too late")
    assert request.verdict == Verdict(True)


def test_the_one_that_watches_a_request_is_told_once() -> None:
    request = shell("ls")
    told: list[bool] = []
    request.on_decision(told.append)
    request.reject("no")
    request.close("again")
    assert told == [False]


@pytest.mark.parametrize("accepted", [True, False])
def test_one_that_watches_a_request_too_late_is_told_at_once(accepted: bool) -> None:
    request = shell("ls")
    request.accept() if accepted else request.reject()
    told: list[bool] = []
    request.on_decision(told.append)
    assert told == [accepted]


def test_one_that_fails_at_the_answer_is_logged_and_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    request = shell("ls")
    told: list[bool] = []
    request.on_decision(lambda accepted: told[1])
    request.on_decision(told.append)
    request.accept()
    assert told == [True]
    assert "a function passed to on_decision has failed" in caplog.text
    assert "IndexError" in caplog.text


@pytest.mark.parametrize("accepted", [True, False])
def test_the_response_to_a_request_is_waited_for_and_passed_on(accepted: bool) -> None:
    passed_on: list[bool] = []

    async def respond(answer: bool) -> None:
        passed_on.append(answer)

    async def scenario() -> tuple[bool, bool]:
        request = ApprovalRequest("s", "t", {}, respond)
        waiting = asyncio.ensure_future(request.response())
        await asyncio.sleep(0)
        assert not waiting.done()
        await (request.accept() if accepted else request.reject())
        return await waiting, await request.response()

    assert asyncio.run(scenario()) == (accepted, accepted)
    assert passed_on == [accepted]


def test_a_verdict_is_not_changed() -> None:
    verdict = Verdict(False)
    with pytest.raises(AttributeError):
        verdict.accepted = True  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [
        {"remember": "forever"},
        {"remember": True},
        {"args": {"cmd": "*"}},
        {"remember": "session", "args": "*"},
        {"remember": "session", "args": {1: "*"}},
        {"remember": "session", "args": {"cmd": object()}},
    ],
)
def test_a_wrong_answer_is_refused_and_the_request_stays_open(wrong: dict[str, Any]) -> None:
    request = shell("ls")
    with pytest.raises(InvalidInput, match=r"remember|args"):
        request.accept(**wrong)
    with pytest.raises(InvalidInput, match="reason"):
        request.reject(5)  # type: ignore[arg-type]
    assert request.open


def test_changing_a_requests_arguments_changes_neither_the_call_nor_what_is_shown() -> None:
    ask = Ask("c", 1, "s", "t", {"deep": ["a", {"b": 1}]})
    request = SyncApprovalRequest.of(ask)
    request.tool_args["deep"].append("c")
    request.tool_args["deep"][1]["b"] = 2
    assert ask.tool_args == {"deep": ["a", {"b": 1}]}
    assert str(request) == "s.t(deep=['a', {'b': 1}])"


def test_both_kinds_of_request_say_what_they_are() -> None:
    request = ApprovalRequest.of(Ask("cell", 1, "kernelbox", "shell", {"cmd": "ls"}))
    assert repr(request) == "<ApprovalRequest kernelbox.shell(cmd='ls') open>"
    assert request.id == "cell-1"
    answered = shell("ls")
    answered.reject("no\x1b")
    assert repr(answered) == "<SyncApprovalRequest kernelbox.shell(cmd='ls') rejected: no\\x1b>"


# Characters that move, hide or cover others, or that a terminal obeys.
MISLEADING = [
    "\n",
    "\r",
    "\t",
    "\x00",
    "\x1b[2K",
    "\x7f",
    "\x9b",
    "\u00a0",
    "\u00ad",
    "\u034f",
    "\u05d0",
    "\u0627",
    "\u0661",
    "\u061c",
    "\u115f",
    "\u1160",
    "\u180b",
    "\u200b",
    "\u200d",
    "\u200e",
    "\u2028",
    "\u202e",
    "\u2066",
    "\u2800",
    "\u3164",
    "\u0301",
    "\u20dd",
    "\ufe0f",
    "\ufeff",
    "\uffa0",
    "\ud800",
    "\U000e0041",
    "\U000e0100",
]


@pytest.mark.parametrize("text", MISLEADING, ids=ascii)
def test_every_part_of_a_request_is_escaped_where_it_would_mislead(text: str) -> None:
    nested = {f"k{text}": [f"v{text}", {f"d{text}": text}]}
    request = SyncApprovalRequest.of(Ask("c", 1, f"s{text}", f"t{text}", {f"n{text}": f"x{text}", "nested": nested}))
    for shown in (str(request), repr(request)):
        assert shown.isascii()
        assert shown.isprintable()
        assert shown.count(ascii(text)[1:-1]) == 8
    with pytest.raises(ApprovalClosed) as caught:
        _answer_twice(request)
    assert str(caught.value).isprintable()


def _answer_twice(request: SyncApprovalRequest) -> None:
    request.reject("no\n\u202e")
    request.reject()


texts = st.text(max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@untimed
@given(texts, texts, st.dictionaries(texts, json_values, max_size=3))
def test_whatever_is_asked_for_is_shown_on_one_line_of_characters_that_stay_where_they_are(
    server: str, tool: str, args: dict[str, Any]
) -> None:
    shown = repr(SyncApprovalRequest.of(Ask("c", 1, server, tool, args)))
    assert shown.isprintable()
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Mn", "Me", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(char) for char in shown} & {"R", "AL", "AN"}


def test_words_of_other_languages_are_shown_as_they_are() -> None:
    assert str(shell("echo größe 文件 привет 😀")) == "kernelbox.shell(cmd='echo größe 文件 привет 😀')"


def test_a_name_that_is_no_plain_word_is_quoted_and_cannot_pass_for_another_call() -> None:
    request = SyncApprovalRequest.of(Ask("c", 1, "kernelbox.shell(cmd='ls')  #", "a b", {"x=1, y": 2}))
    assert str(request) == "\"kernelbox.shell(cmd='ls')  #\".'a b'('x=1, y'=2)"
    assert (
        str(SyncApprovalRequest.of(Ask("c", 1, "my-server", "get_it", {"a-b": None}))) == "my-server.get_it(a-b=None)"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"cmd": "begins" + "x" * 10_000_000 + "ends"}, "10,000,010 characters in all"),
        ({"cmd": "begins" + "\U000e0100" * 1_000_000 + "ends"}, "1,000,010 characters in all"),
        ({"list": ["begins", *range(100_000)]}, "100,001 items in all"),
        ({"dict": {"begins": 0, **{str(n): n for n in range(100_000)}}}, "100,001 items in all"),
        ({"begins": 0, **{f"n{n}": "x" * 1000 for n in range(10_000)}}, "10,001 arguments in all"),
        ({"lists": ["begins", [["x" * 100] * 1000] * 1000]}, "1,000 items in all"),
    ],
    ids=["text", "escapes", "list", "dict", "arguments", "nested"],
)
def test_a_long_request_is_shown_shortened_with_its_length_and_kept_whole(args: dict[str, Any], said: str) -> None:
    request = SyncApprovalRequest.of(Ask("c", 1, "s", "t", args))
    assert len(str(request)) < 12_000
    assert said in str(request)
    assert "begins" in str(request)
    assert request.tool_args == args


def test_a_long_text_is_shown_with_its_beginning_and_its_end() -> None:
    shown = str(shell("begins" + "x" * 5000 + "; rm -rf /", program="perl"))
    assert shown.startswith("kernelbox.shell(cmd='beginsxxx")
    assert shown.endswith("xxx; rm -rf /', program='perl')")


def test_long_names_at_every_level_take_no_more_room_than_one() -> None:
    nested: Any = 1
    for _ in range(9):
        nested = {"k" * 5000: nested}
    assert len(str(SyncApprovalRequest.of(Ask("c", 1, "s", "t", {"nested": nested})))) < 4000


def test_a_long_name_is_shortened() -> None:
    assert len(str(SyncApprovalRequest.of(Ask("c", 1, "s" * 100_000, "t" * 100_000, {"n" * 100_000: 1})))) < 1000


def test_deep_arguments_are_copied_whole_and_shown_as_deep_as_a_person_reads() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    request = SyncApprovalRequest.of(Ask("c", 1, "s", "t", {"deep": deep}))
    assert request.tool_args == {"deep": deep}
    assert str(request) == "s.t(deep=" + "[" * 10 + "… 1 items …" + "]" * 10 + ")"
