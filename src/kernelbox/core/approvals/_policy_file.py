"""An approval policy in a file, as TOML or JSON."""

from __future__ import annotations

import json
import tomllib

from kernelbox.base._errors import InvalidInput
from kernelbox.core.approvals._approval_policy import ApprovalPolicy, ApprovalRule

_FIELDS = ("action", "server", "tool", "args", "reason")
_ADVICE = 'write `default = "ask"` and tables [[rules]] with action, server, tool, args and reason'


def read_policy(path: str) -> ApprovalPolicy:
    """Returns the policy in a file whose name ends in .toml or .json; raises InvalidInput."""
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        content = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as exc:
        raise InvalidInput("the policy", path, f"it cannot be read: {exc}") from exc
    return parse_policy(content, path)


def parse_policy(content: object, path: str) -> ApprovalPolicy:
    """Returns the policy that the content of a file describes; unknown words are errors."""
    if not isinstance(content, dict) or content.keys() - {"default", "rules"}:
        raise InvalidInput("the policy", path, _ADVICE)
    rules = content.get("rules", [])
    if not isinstance(rules, list):
        raise InvalidInput("the rules", path, _ADVICE)
    read = [_rule(rule, number) for number, rule in enumerate(rules, 1)]
    return ApprovalPolicy(*read, default=content.get("default"))


def _rule(rule: object, number: int) -> ApprovalRule:
    if not isinstance(rule, dict) or "action" not in rule or rule.keys() - _FIELDS:
        raise InvalidInput(f"rule {number} of the policy", rule, f"it has an action, and any of {', '.join(_FIELDS)}")
    return ApprovalRule(**rule)
