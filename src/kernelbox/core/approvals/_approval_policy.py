"""Rules for tool calls and shell commands, and the policy that they make up: pure decisions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kernelbox.base._errors import InvalidInput
from kernelbox.wire._messages import SHELL_SERVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Action = Literal["allow", "deny", "ask"]

_ACTIONS = ("allow", "deny", "ask")

# Programs that understand a command as the shell of `!` does.
_SHELLS = ("bash", "sh")


@dataclass(frozen=True, kw_only=True)
class ApprovalRule:
    """Says what to do with calls whose server, tool and arguments match. Patterns are globs: `*`, `?`, `[abc]`.

    An argument is compared as its text, or as its JSON if it is not a string; a pattern that is not a string must
    be equal to it. A call without the argument does not match.

    Shell commands have the server "kernelbox", the tool "shell" or "shell_magic", and the argument `cmd`. A rule
    that *allows* them is read narrowly. A call with more arguments than `cmd` (`program`, `cwd`, `env`) is allowed
    only by a rule that names them too, or by one for every tool and without arguments; a `program` that is just `bash`
    or `sh` need not be named. And a pattern allows a command only if the shell runs it as it is written: one program,
    without `;`, `|`, `>`, `$x`, `*` and the like; unless the pattern is `*` or the very command.
    """

    action: Action
    server: str = "*"
    tool: str = "*"
    args: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""

    def __post_init__(self) -> None:
        if self.action not in _ACTIONS:
            raise InvalidInput("the action of a rule", self.action, "use allow, deny or ask")
        for name in ("server", "tool", "reason"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(f"the {name} of a rule", getattr(self, name), "use a string")
        object.__setattr__(self, "args", check_patterns(self.args))

    def matches(self, server: str, tool: str, args: Mapping[str, object]) -> bool:
        """Tells whether the rule applies to this call."""
        if not fnmatchcase(server, self.server) or not fnmatchcase(tool, self.tool):
            return False
        if self.action != "allow" or server != SHELL_SERVER:
            return all(name in args and _fits(args[name], pattern) for name, pattern in self.args.items())
        return self._accounts_for(args) and all(
            name in args and _fits(args[name], pattern) and _is_narrow(args[name], pattern)
            for name, pattern in self.args.items()
        )

    def concerns_shell(self) -> bool:
        """Tells whether the rule can match shell commands."""
        tools = ("shell", "shell_magic")
        return fnmatchcase(SHELL_SERVER, self.server) and any(fnmatchcase(tool, self.tool) for tool in tools)

    def _accounts_for(self, args: Mapping[str, object]) -> bool:
        """Tells whether the rule names everything about a command that decides what will run."""
        everything = self.tool == "*" and not self.args
        usual = {"cmd", "program"} if args.get("program") in _SHELLS else {"cmd"}
        return everything or args.keys() - usual <= self.args.keys()


class ApprovalPolicy:
    """Rules for approvals; their order does not matter: deny wins over ask, and ask over allow.

    `default` decides what no rule matches. None leaves that to the caller: `CodeExecutor.stream` asks,
    `CodeExecutor.execute` accepts, and the functions of the synchronous API ask.
    """

    def __init__(self, *rules: ApprovalRule, default: Action | None = None) -> None:
        for rule in rules:
            if not isinstance(rule, ApprovalRule):
                raise InvalidInput("a rule of a policy", rule, "use ApprovalRule, or the methods allow, deny and ask")
        if default is not None and default not in _ACTIONS:
            raise InvalidInput("the default of a policy", default, "use allow, deny, ask or None")
        self.rules = list(rules)
        self.default = default

    def __repr__(self) -> str:
        return f"<ApprovalPolicy {len(self.rules)} rules, default {self.default}>"

    def allow(self, tool: str = "*", *, server: str = "*", args: Mapping[str, object] | None = None) -> ApprovalPolicy:
        """Adds a rule that lets calls run without asking; returns the policy."""
        return self._add("allow", tool, server, args)

    def deny(
        self, tool: str = "*", *, server: str = "*", args: Mapping[str, object] | None = None, reason: str = ""
    ) -> ApprovalPolicy:
        """Adds a rule that rejects calls, even if others allow them; returns the policy."""
        return self._add("deny", tool, server, args, reason)

    def ask(self, tool: str = "*", *, server: str = "*", args: Mapping[str, object] | None = None) -> ApprovalPolicy:
        """Adds a rule that asks about calls, even if another would allow them; returns the policy."""
        return self._add("ask", tool, server, args)

    def concerns_shell(self) -> bool:
        """Tells whether shell commands must be held for this policy to see them."""
        return self.default is not None or any(rule.concerns_shell() for rule in self.rules)

    def decide(
        self, server: str, tool: str, args: Mapping[str, object], *, remembered: bool = False
    ) -> tuple[Action | None, str]:
        """Returns the action for a call, None if the policy has none, and the reason for a rejection."""
        found = {rule.action: rule for rule in reversed(self.rules) if rule.matches(server, tool, args)}
        if "deny" in found:
            return "deny", found["deny"].reason or "denied by the approval policy"
        if remembered:
            return "allow", ""
        for action in ("ask", "allow"):
            if action in found:
                return action, ""
        return self.default, "not allowed by the approval policy" if self.default == "deny" else ""

    def _add(
        self, action: Action, tool: str, server: str, args: Mapping[str, object] | None, reason: str = ""
    ) -> ApprovalPolicy:
        given = {} if args is None else args
        self.rules.append(ApprovalRule(action=action, server=server, tool=tool, args=given, reason=reason))
        return self


def check_policy(policy: object) -> ApprovalPolicy:
    """Returns a usable policy; None means an empty one."""
    if policy is None:
        return ApprovalPolicy()
    if not isinstance(policy, ApprovalPolicy):
        raise InvalidInput("the policy", policy, "use an ApprovalPolicy")
    return policy


def check_patterns(args: object) -> dict[str, object]:
    """Returns a copy of usable patterns for arguments."""
    advice = "use a dict of argument names to patterns: globs, or values that JSON has a form for"
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise InvalidInput("the args of a rule", args, advice)
    try:
        for pattern in args.values():
            as_json(pattern)
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidInput("the args of a rule", args, advice) from exc
    return dict(args)


# One text for each value: 1, 1.0, true and "1" differ, and the order of names does not count.
as_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


def _fits(value: object, pattern: object) -> bool:
    if isinstance(pattern, str):
        text = _as_text(value)
        return text == pattern or fnmatchcase(text, pattern)
    return as_json(value) == as_json(pattern)


def _is_narrow(value: object, pattern: object) -> bool:
    """Tells whether a pattern that fits a shell argument really says what will run, despite its wildcards."""
    if not isinstance(pattern, str) or pattern == "*":
        return True
    if pattern == _as_text(value) and not set("*?[") & set(pattern):
        return True  # exactly the command; the shell would expand one with wildcards
    return _runs_as_written(_as_text(value))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else as_json(value)


def _runs_as_written(command: str) -> bool:
    """Tells whether a shell runs a command as it is written: one program, and every word as the pattern saw it.

    Quotes are fine: they can hide a space, but not start a program. `=`, `-`, `^`, `%`, `@` mean nothing to the shell
    where the checks below allow them.
    """
    return _SHELL_SYNTAX.isdisjoint(command) and not _ASSIGNMENT(command) and not _HOME_DIRECTORY(command)


_SHELL_SYNTAX = frozenset(
    ";&|\n"  # ends one command and begins another
    "<>"  # reads or writes a file
    "`$()"  # runs a command inside, or puts in what a variable holds
    "{}*?["  # becomes other words: names of files, a list
    "\\"  # takes the meaning from what follows, or joins lines
    "#"  # what follows is not run: `rm -rf x # --dry-run`
    "!"  # negates; repeats earlier commands where history is on
    "\r\0"  # a terminal goes back to the start of the line; a program sees the end of the text
)

# `LD_PRELOAD=x.so ls` does not just run `ls`.
_ASSIGNMENT = re.compile(r"\s*\w+\+?=").match

# `~` and `~user` where the shell inserts a directory; not `HEAD~1`.
_HOME_DIRECTORY = re.compile(r"(?:^|[\s=:])~").search
