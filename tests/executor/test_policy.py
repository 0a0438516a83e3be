"""Rules, defaults and what is remembered: pure decisions."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from kernelbox import ApprovalClosed, ApprovalPolicy, ApprovalRequest, ApprovalRule, InvalidInput, SyncApprovalRequest
from kernelbox.core._approvals import Remembered
from kernelbox.wire._messages import Ask


def shell(command: str, *, tool: str = "shell", **args: str) -> Ask:
    return Ask("cell", 1, "kernelbox", tool, {"cmd": command, **args})


@pytest.mark.parametrize(
    ("rule", "call", "matches"),
    [
        ({}, ("any", "tool", {}), True),
        ({"server": "git*"}, ("github", "search", {}), True),
        ({"server": "git*"}, ("gitlab", "search", {}), True),
        ({"server": "git*"}, ("Github", "search", {}), False),
        ({"tool": "get_?"}, ("s", "get_a", {}), True),
        ({"tool": "get_?"}, ("s", "get_ab", {}), False),
        ({"args": {"path": "/tmp/*"}}, ("s", "t", {"path": "/tmp/x"}), True),
        ({"args": {"path": "/tmp/*"}}, ("s", "t", {"path": "/etc/x"}), False),
        ({"args": {"path": "*"}}, ("s", "t", {}), False),
        ({"args": {"count": "1?"}}, ("s", "t", {"count": 12}), True),
        ({"args": {"count": 12}}, ("s", "t", {"count": 12}), True),
        ({"args": {"count": 1}}, ("s", "t", {"count": True}), False),
        ({"args": {"list": '*"b"*'}}, ("s", "t", {"list": ["a", "b"]}), True),
        ({"args": {"text": "a*z"}}, ("s", "t", {"text": "a\nmiddle\nz"}), True),
    ],
)
def test_a_rule_matches_server_tool_and_argument_values_by_glob(
    rule: dict[str, Any], call: tuple[str, str, dict[str, Any]], matches: bool
) -> None:
    assert ApprovalRule(action="deny", **rule).matches(*call) is matches


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf /",
        "git status | sh",
        "git $(rm x)",
        "git `rm x`",
        "git status\nrm x",
        "git status > ~/.bashrc",
    ],
)
def test_a_pattern_that_allows_a_program_does_not_allow_what_is_chained_to_it(command: str) -> None:
    rule = ApprovalRule(action="allow", tool="shell", args={"cmd": "git *"})
    assert rule.matches("kernelbox", "shell", {"cmd": "git status"})
    assert not rule.matches("kernelbox", "shell", {"cmd": command})


def test_a_pattern_that_denies_is_taken_at_its_word() -> None:
    rule = ApprovalRule(action="deny", tool="shell", args={"cmd": "*rm *"})
    assert rule.matches("kernelbox", "shell", {"cmd": "ls; rm -rf /"})


def test_deny_wins_over_everything_in_whatever_order() -> None:
    for policy in (ApprovalPolicy().allow().ask().deny(), ApprovalPolicy().deny().ask().allow()):
        assert policy.decide("s", "t", {}, remembered=True)[0] == "deny"


def test_ask_wins_over_allow_and_a_remembered_answer_over_ask() -> None:
    policy = ApprovalPolicy().allow().ask("t")
    assert policy.decide("s", "t", {})[0] == "ask"
    assert policy.decide("s", "other", {})[0] == "allow"
    assert policy.decide("s", "t", {}, remembered=True)[0] == "allow"


@pytest.mark.parametrize("default", ["allow", "deny", "ask", None])
def test_the_default_decides_what_no_rule_matches(default: Literal["allow", "deny", "ask"] | None) -> None:
    assert ApprovalPolicy(ApprovalRule(action="allow", tool="x"), default=default).decide("s", "t", {})[0] == default


def test_a_denial_says_why() -> None:
    assert ApprovalPolicy().deny(reason="not today").decide("s", "t", {}) == ("deny", "not today")
    assert ApprovalPolicy(default="deny").decide("s", "t", {}) == ("deny", "not allowed by the approval policy")


def test_a_policy_knows_whether_it_speaks_of_shell_commands() -> None:
    assert not ApprovalPolicy().concerns_shell()
    assert not ApprovalPolicy().deny(server="github").concerns_shell()
    assert ApprovalPolicy().deny("shell_magic").concerns_shell()
    assert ApprovalPolicy().deny().concerns_shell()
    assert ApprovalPolicy(default="deny").concerns_shell()


def test_what_cannot_be_an_action_is_refused() -> None:
    with pytest.raises(InvalidInput, match="action"):
        ApprovalRule(action="maybe")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="default"):
        ApprovalPolicy(default="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accepted", "next_call", "covered"),
    [
        (shell("git status"), shell("git log -1"), True),
        (shell("git status"), shell("git"), True),
        (shell("git"), shell("git log"), True),
        (shell("git status"), shell("gitk x"), False),
        (shell("git status"), shell("rm -rf /"), False),
        (shell("git status"), shell("git log; rm -rf /"), False),
        (shell("ls | wc"), shell("ls | wc"), True),
        (shell("ls | wc"), shell("ls | sh"), False),
        (shell("echo *"), shell("echo *"), True),
        (shell("ls [a]|cat"), shell("ls a|cat"), False),
        (shell("python a.py"), shell("python b.py"), False),
        (shell("sudo ls"), shell("sudo rm"), False),
        (shell("A=1 ls"), shell("A=1 rm"), False),
        (shell("echo 1", tool="shell_magic"), shell("echo 1", tool="shell_magic"), True),
        (shell("echo 1", tool="shell_magic"), shell("echo 2", tool="shell_magic"), False),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "get", {"x": 2}), True),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "git", "put", {"x": 1}), False),
        (Ask("c", 1, "git", "get", {"x": 1}), Ask("c", 2, "hub", "get", {"x": 1}), False),
    ],
)
def test_a_remembered_answer_covers_the_same_tool_and_the_same_one_program(
    accepted: Ask, next_call: Ask, covered: bool
) -> None:
    remembered = Remembered()
    remembered.keep("execution", accepted, None)
    assert remembered.covers(next_call) is covered


def test_a_script_that_is_remembered_is_remembered_with_its_program() -> None:
    remembered = Remembered()
    remembered.keep("session", shell("print 1", tool="shell_magic", program="perl"), None)
    assert remembered.covers(shell("print 1", tool="shell_magic", program="perl"))
    assert not remembered.covers(shell("print 1", tool="shell_magic", program="sh -x"))


def test_what_to_remember_can_be_said_in_patterns() -> None:
    remembered = Remembered()
    remembered.keep("session", Ask("c", 1, "files", "read", {"path": "/tmp/a"}), {"path": "/tmp/*"})
    assert remembered.covers(Ask("c", 2, "files", "read", {"path": "/tmp/b"}))
    assert not remembered.covers(Ask("c", 3, "files", "read", {"path": "/etc/b"}))


def test_each_memory_is_forgotten_by_itself() -> None:
    remembered = Remembered()
    remembered.keep("execution", Ask("c", 1, "s", "a", {}), None)
    remembered.keep("session", Ask("c", 2, "s", "b", {}), None)
    remembered.forget("execution")
    assert not remembered.covers(Ask("c", 3, "s", "a", {}))
    assert remembered.covers(Ask("c", 4, "s", "b", {}))


def settled(ask: Ask) -> tuple[SyncApprovalRequest, list[tuple[bool, str]]]:
    answers: list[tuple[bool, str]] = []
    return SyncApprovalRequest(ask, lambda ok, reason: answers.append((ok, reason)), Remembered()), answers


def test_a_request_is_answered_once() -> None:
    request, answers = settled(shell("ls"))
    request.accept()
    for again in (request.accept, request.reject):
        with pytest.raises(ApprovalClosed, match="already accepted"):
            again()
    assert answers == [(True, "")]


def test_a_request_that_nobody_answered_in_time_is_rejected_with_the_reason() -> None:
    request, answers = settled(shell("ls"))
    request.close("no answer within 1 s")
    request.close("again")
    with pytest.raises(ApprovalClosed, match="already rejected: no answer within 1 s"):
        request.accept()
    assert answers == [(False, "no answer within 1 s")]


def test_a_wrong_memory_is_refused_and_the_request_stays_open() -> None:
    request, answers = settled(shell("ls"))
    with pytest.raises(InvalidInput, match="remember"):
        request.accept(remember="forever")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="remember="):
        request.accept(args={"cmd": "*"})
    assert request.open
    assert answers == []


def test_changing_a_requests_arguments_does_not_change_the_call() -> None:
    ask = Ask("c", 1, "s", "t", {"deep": ["a"]})
    request, _ = settled(ask)
    request.tool_args["deep"].append("b")
    assert ask.tool_args == {"deep": ["a"]}


def test_a_request_shows_characters_that_would_mislead_a_reader_as_escapes() -> None:
    request, _ = settled(shell("echo \u202egnp.exe \u200b\x1b[2K\r"))
    for shown in (str(request), repr(request)):
        assert "\\u202e" in shown
        assert "\\u200b" in shown
        assert "\\x1b" in shown
        assert shown.isprintable()


def test_both_kinds_of_request_say_what_they_are() -> None:
    request = ApprovalRequest(shell("ls"), lambda ok, reason: None, Remembered())
    assert repr(request) == "<ApprovalRequest kernelbox.shell(cmd='ls') open>"
    assert request.id == "cell-1"
