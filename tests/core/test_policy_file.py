"""Policies in files: what a word means is known, and any other word is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelbox import ApprovalPolicy, ApprovalRule, InvalidInput
from kernelbox.core.approvals._policy_file import parse_policy, read_policy

RULE: dict[str, Any] = {"action": "deny", "server": "s", "tool": "t", "args": {"cmd": "x"}, "reason": "r"}


def test_a_policy_is_read_from_toml_and_from_json(tmp_path: Path) -> None:
    toml, plain = tmp_path / "policy.toml", tmp_path / "policy.json"
    toml.write_text('default = "ask"\n[[rules]]\naction = "deny"\ntool = "é"\n')
    plain.write_text(json.dumps({"default": "ask", "rules": [{"action": "deny", "tool": "é"}]}))
    expected = ApprovalPolicy(ApprovalRule(action="deny", tool="é"), default="ask")
    assert repr(read_policy(str(toml))) == repr(read_policy(str(plain))) == repr(expected)


def test_a_policy_may_have_a_default_rules_both_or_neither() -> None:
    assert repr(parse_policy({}, "x")) == repr(ApprovalPolicy(default=None))
    assert repr(parse_policy({"default": "ask"}, "x")) == repr(ApprovalPolicy(default="ask"))
    assert repr(parse_policy({"rules": [RULE]}, "x")) == repr(ApprovalPolicy(ApprovalRule(**RULE), default=None))


@pytest.mark.parametrize("content", [None, [], "ask", {"defualt": "ask"}, {"default": "ask", "more": 1}])
def test_what_is_no_policy_is_refused_with_the_form_of_one(content: object) -> None:
    with pytest.raises(InvalidInput, match=r"^the policy cannot be 'x': write `default = "):
        parse_policy(content, "x")


@pytest.mark.parametrize("rules", [None, {}, "deny", {"action": "deny"}])
def test_rules_that_are_no_list_are_refused(rules: object) -> None:
    with pytest.raises(InvalidInput, match=r"^the rules cannot be 'x': write `default = "):
        parse_policy({"rules": rules}, "x")


@pytest.mark.parametrize("rule", [None, "deny", {}, {"tool": "t"}, {**RULE, "sever": "s"}])
def test_a_rule_with_a_word_too_many_or_too_few_is_named_by_its_number(rule: object) -> None:
    with pytest.raises(InvalidInput, match=r"^rule 2 of the policy cannot be .*: it has an action, and any of "):
        parse_policy({"rules": [RULE, rule]}, "x")


@pytest.mark.parametrize(
    ("name", "content"),
    [("p.toml", b"default ="), ("p.json", b"{"), ("p.json", b"[" * 100_000), ("p.toml", b"\xff"), ("none.toml", None)],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"^the policy cannot be .*: it cannot be read: .+"):
        read_policy(str(path))
