"""Rules and policies: pure decisions."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest

from kernelbox import ApprovalPolicy, ApprovalRule, InvalidInput
from kernelbox.core.approvals._approval_policy import check_policy


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
        ({"args": {"path": "/tmp/*"}}, ("s", "t", {"path": "/tmp/x", "mode": "w"}), True),
        ({"args": {"path": "*"}}, ("s", "t", {}), False),
        ({"args": {"path": "a", "mode": "r"}}, ("s", "t", {"path": "a", "mode": "w"}), False),
        ({"args": {"count": "1?"}}, ("s", "t", {"count": 12}), True),
        ({"args": {"count": 12}}, ("s", "t", {"count": 12}), True),
        ({"args": {"count": 12}}, ("s", "t", {"count": "12"}), False),
        ({"args": {"count": 1}}, ("s", "t", {"count": True}), False),
        ({"args": {"count": 1}}, ("s", "t", {"count": 1.0}), False),
        ({"args": {"count": [1]}}, ("s", "t", {"count": [True]}), False),
        ({"args": {"count": None}}, ("s", "t", {"count": None}), True),
        ({"args": {"map": {"a": 1, "b": 2}}}, ("s", "t", {"map": {"b": 2, "a": 1}}), True),
        ({"args": {"list": '*"b"*'}}, ("s", "t", {"list": ["a", "b"]}), True),
        ({"args": {"list": '*"é"*'}}, ("s", "t", {"list": ["a", "é"]}), True),
        ({"args": {"text": "a*z"}}, ("s", "t", {"text": "a\nmiddle\nz"}), True),
    ],
)
@pytest.mark.parametrize("action", ["allow", "deny", "ask"])
def test_a_rule_matches_server_tool_and_argument_values_by_glob(
    action: Literal["allow", "deny", "ask"], rule: dict[str, Any], call: tuple[str, str, dict[str, Any]], matches: bool
) -> None:
    assert ApprovalRule(action=action, **rule).matches(*call) is matches


def test_a_rule_is_made_by_names_and_is_not_changed() -> None:
    rule = ApprovalRule(action="deny")
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.action = "allow"  # type: ignore[misc]
    with pytest.raises(TypeError):
        ApprovalRule("deny")  # type: ignore[call-arg]
    assert rule == ApprovalRule(action="deny", server="*", tool="*")


# What a shell would make something else of, or more than one program.
NOT_AS_WRITTEN = [
    "git status; rm -rf /",
    "git status & rm x",
    "git status && rm x",
    "git status | sh",
    "git status || rm x",
    "git status\nrm x",
    "git status\rrm x",
    "git status\0rm x",
    "git status < secret",
    "git status > out",
    "git $HOME",
    "git ${IFS}x",
    "git $(rm x)",
    "git `rm x`",
    "git (",
    "git )",
    "git {",
    "git }",
    "git *",
    "git add ?",
    "git add [ab]",
    "git add a\\ b",
    "git !x",
    "git push # --dry-run",
    "git add ~",
    "git add ~root/x",
    "git -c core.editor=~/x",
    "git\tadd a:~/x",
]

AS_WRITTEN = [
    "git status",
    "git commit -m 'two words'",
    'git commit -m "two words"',
    "git log HEAD~1",
    "git show HEAD^",
    "git -c user.name=me log",
    "git log --format=%h @",
    "git add a-b_c.d/e,f:g+h]",
    "git add größe 文件",
]


@pytest.mark.parametrize("command", NOT_AS_WRITTEN)
def test_a_pattern_with_wildcards_allows_no_command_that_the_shell_makes_more_of(command: str) -> None:
    rule = ApprovalRule(action="allow", tool="shell", args={"cmd": "git?*"})
    assert not rule.matches("kernelbox", "shell", {"cmd": command})


@pytest.mark.parametrize("command", NOT_AS_WRITTEN)
def test_a_pattern_that_is_the_very_command_or_everything_allows_it(command: str) -> None:
    exactly = ApprovalRule(action="allow", tool="shell", args={"cmd": command})
    wild = bool(set("*?[") & set(command))  # the shell would put names of files there, which a cell can choose
    assert exactly.matches("kernelbox", "shell", {"cmd": command}) is not wild
    everything = ApprovalRule(action="allow", tool="shell", args={"cmd": "*"})
    assert everything.matches("kernelbox", "shell", {"cmd": command})


@pytest.mark.parametrize("command", AS_WRITTEN)
def test_a_pattern_with_wildcards_allows_one_program_with_plain_words(command: str) -> None:
    rule = ApprovalRule(action="allow", tool="shell", args={"cmd": "git *"})
    assert rule.matches("kernelbox", "shell", {"cmd": command})


@pytest.mark.parametrize("command", ["LD_PRELOAD=x.so git log", " PATH+=:/tmp git log", "a1=git log"])
def test_a_pattern_that_begins_with_a_wildcard_allows_no_change_of_the_environment(command: str) -> None:
    rule = ApprovalRule(action="allow", args={"cmd": "*git *"})
    assert rule.matches("kernelbox", "shell", {"cmd": "/usr/bin/git log"})
    assert not rule.matches("kernelbox", "shell", {"cmd": command})


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize("command", NOT_AS_WRITTEN)
def test_a_pattern_that_denies_or_asks_is_taken_at_its_word(command: str, action: Literal["deny", "ask"]) -> None:
    rule = ApprovalRule(action=action, tool="shell", args={"cmd": "git?*"})
    assert rule.matches("kernelbox", "shell", {"cmd": command})
    assert rule.matches("kernelbox", "shell", {"cmd": command, "env": {"A": "b"}})


def test_what_the_shell_would_make_of_a_text_does_not_matter_to_other_servers() -> None:
    assert ApprovalRule(action="allow", args={"q": "a*"}).matches("web", "search", {"q": "a; $b | c"})


@pytest.mark.parametrize(
    ("more", "unnamed"),
    [
        ({"program": "perl"}, "program"),
        ({"env": {"LD_PRELOAD": "x.so"}}, "env"),
        ({"env": {"PATH": None}}, "env"),
        ({"program": "bash -x"}, "program"),
        ({"program": ["bash"]}, "program"),
        ({"something": "new"}, "something"),
    ],
)
def test_a_rule_allows_only_commands_all_of_whose_arguments_it_names(more: dict[str, Any], unnamed: str) -> None:
    call = {"cmd": "echo 1", **more}
    for tool in ("shell", "shell*", "*"):
        for cmd in ("echo *", "*", "echo 1"):
            rule = ApprovalRule(action="allow", tool=tool, args={"cmd": cmd})
            assert rule.matches("kernelbox", "shell", {"cmd": "echo 1"})
            assert not rule.matches("kernelbox", "shell", call)
            named = ApprovalRule(action="allow", tool=tool, args={"cmd": cmd, unnamed: "*"})
            assert named.matches("kernelbox", "shell", call)
            assert not named.matches("kernelbox", "shell", {"cmd": "echo 1"})
    assert not ApprovalRule(action="allow", tool="shell").matches("kernelbox", "shell", call)
    assert ApprovalRule(action="allow", args={unnamed: more[unnamed]}).matches("kernelbox", "shell", call)


@pytest.mark.parametrize("program", ["bash", "sh"])
def test_a_rule_for_commands_allows_them_in_every_usual_shell(program: str) -> None:
    rule = ApprovalRule(action="allow", tool="shell", args={"cmd": "echo *"})
    assert rule.matches("kernelbox", "shell", {"cmd": "echo 1", "program": program})
    assert not rule.matches("kernelbox", "shell", {"cmd": "echo 1; ls", "program": program})
    assert not rule.matches("kernelbox", "shell", {"cmd": "echo 1", "program": program, "argv": ["perl"]})
    other = ApprovalRule(action="allow", tool="shell", args={"cmd": "echo *", "program": "zsh"})
    assert not other.matches("kernelbox", "shell", {"cmd": "echo 1", "program": program})


def test_a_rule_for_every_tool_without_arguments_and_the_default_mean_everything() -> None:
    call = ("kernelbox", "shell_magic", {"cmd": "print 1; print 2", "program": "perl", "env": {"A": None}})
    assert ApprovalPolicy().allow().decide(*call)[0] == "allow"
    assert ApprovalPolicy().allow(server="kernelbox").decide(*call)[0] == "allow"
    assert ApprovalPolicy(default="allow").decide(*call)[0] == "allow"


def test_a_pattern_with_wildcards_does_not_allow_one_changed_variable_together_with_others() -> None:
    rule = ApprovalRule(action="allow", args={"cmd": "make", "env": '{"LANG": *'})
    call = {"cmd": "make", "env": {"LANG": "C", "LD_PRELOAD": "x.so"}}
    assert not rule.matches("kernelbox", "shell", call)
    exactly = ApprovalRule(action="allow", args={"cmd": "make", "env": {"LANG": "C"}})
    assert exactly.matches("kernelbox", "shell", {"cmd": "make", "env": {"LANG": "C"}})
    assert not exactly.matches("kernelbox", "shell", call)


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
    assert ApprovalPolicy().deny().decide("s", "t", {}) == ("deny", "denied by the approval policy")
    assert ApprovalPolicy(default="deny").decide("s", "t", {}) == ("deny", "not allowed by the approval policy")


def test_a_policy_knows_whether_it_speaks_of_shell_commands() -> None:
    assert not ApprovalPolicy().concerns_shell()
    assert not ApprovalPolicy().deny(server="github").concerns_shell()
    assert not ApprovalPolicy().deny("search").concerns_shell()
    assert ApprovalPolicy().deny("shell_magic").concerns_shell()
    assert ApprovalPolicy().deny().concerns_shell()
    assert ApprovalPolicy(default="deny").concerns_shell()


def test_a_rule_keeps_its_patterns_when_the_dict_they_came_in_changes() -> None:
    patterns = {"cmd": "ls"}
    rule = ApprovalRule(action="allow", args=patterns)
    patterns["cmd"] = "*"
    assert not rule.matches("kernelbox", "shell", {"cmd": "rm"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "maybe"},
        {"action": ["allow"]},
        {"server": None},
        {"tool": 1},
        {"reason": 1},
        {"args": None},
        {"args": ["cmd"]},
        {"args": {1: "x"}},
        {"args": {"x": {1, 2}}},
        {"args": {"x": object()}},
    ],
)
def test_what_cannot_be_a_rule_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="of a rule"):
        ApprovalRule(**{"action": "allow", **wrong})


def test_no_policy_is_one_that_says_nothing_and_any_other_is_itself() -> None:
    nothing = check_policy(None)
    assert (nothing.rules, nothing.default) == ([], None)
    assert check_policy(nothing) is nothing
    with pytest.raises(InvalidInput, match="the policy"):
        check_policy([])


def test_what_cannot_be_a_policy_is_refused() -> None:
    with pytest.raises(InvalidInput, match="default"):
        ApprovalPolicy(default="maybe")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a rule of a policy"):
        ApprovalPolicy({"action": "allow"})  # type: ignore[arg-type]
