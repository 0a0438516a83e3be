"""Approvals: requests that hold a tool call or shell command until somebody answers, and the policy that may.

Who decides, in this order: a rule that denies; an answer that is remembered; a rule that asks; a rule that allows; the
policy's default; and at last the caller's own habit (`stream` asks, `execute` accepts). The order of rules does not
matter.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kernelbox.base._errors import ApprovalClosed, InvalidInput
from kernelbox.wire._approvals import SHELL_SERVER
from kernelbox.wire._messages import Answer, Ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any, Literal

    Action = Literal["allow", "deny", "ask"]
    Memory = Literal["execution", "session"]
    # True accepts; a string rejects with that reason, anything else without one.
    Approve = Callable[["SyncApprovalRequest"], bool | str | None]

# What lets one line of shell do more than the one program it begins with.
_SHELL_OPERATORS = frozenset(";&|<>`$(){}\n\r\\!#")


@dataclass(frozen=True, kw_only=True)
class ApprovalRule:
    """Says what to do with calls whose server, tool and arguments match. Patterns are globs: `*`, `?`, `[abc]`.

    An argument is compared as its text, or as its JSON if it is not a string; a pattern that is not a string must
    be equal to it. A call without the argument does not match. Shell commands have the server "kernelbox", the tool
    "shell" or "shell_magic", and the argument `cmd`; a pattern that *allows* commands only matches a command that
    is one program, without `;`, `|`, `>`, `$(…)` and the like, unless it is `*` or the very command.
    """

    action: Action
    server: str = "*"
    tool: str = "*"
    args: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""

    def __post_init__(self) -> None:
        if self.action not in ("allow", "deny", "ask"):
            raise InvalidInput("the action of a rule", self.action, "use allow, deny or ask")

    def matches(self, server: str, tool: str, args: Mapping[str, object]) -> bool:
        """Tells whether the rule speaks of this call."""
        return (
            fnmatchcase(server, self.server)
            and fnmatchcase(tool, self.tool)
            and all(name in args and self._fits(server, args[name], pattern) for name, pattern in self.args.items())
        )

    def concerns_shell(self) -> bool:
        """Tells whether the rule can match shell commands."""
        tools = ("shell", "shell_magic")
        return fnmatchcase(SHELL_SERVER, self.server) and any(fnmatchcase(tool, self.tool) for tool in tools)

    def _fits(self, server: str, value: object, pattern: object) -> bool:
        if not isinstance(pattern, str):
            return type(value) is type(pattern) and value == pattern
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if not fnmatchcase(text, pattern):
            return False
        if self.action != "allow" or server != SHELL_SERVER:
            return True
        return pattern in ("*", text) or not _SHELL_OPERATORS & set(text)


class ApprovalPolicy:
    """Rules for approvals. `default` decides what no rule matches; None leaves that to `stream` and `execute`."""

    def __init__(self, *rules: ApprovalRule, default: Action | None = None) -> None:
        if default not in (None, "allow", "deny", "ask"):
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
        """Adds a rule that rejects calls, whatever else is said about them; returns the policy."""
        return self._add("deny", tool, server, args, reason)

    def ask(self, tool: str = "*", *, server: str = "*", args: Mapping[str, object] | None = None) -> ApprovalPolicy:
        """Adds a rule that has calls asked for, although another would allow them; returns the policy."""
        return self._add("ask", tool, server, args)

    def concerns_shell(self) -> bool:
        """Tells whether shell commands must be held for this policy to see them."""
        return self.default is not None or any(rule.concerns_shell() for rule in self.rules)

    def decide(
        self, server: str, tool: str, args: Mapping[str, object], *, remembered: bool = False
    ) -> tuple[Action | None, str]:
        """Returns what to do with a call, and the reason for a rejection; None if the policy does not say."""
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
        self.rules.append(ApprovalRule(action=action, server=server, tool=tool, args=dict(args or {}), reason=reason))
        return self


class Remembered:
    """Answers that cover the next calls like the one that was asked for."""

    def __init__(self) -> None:
        self._rules: dict[Memory, list[ApprovalRule]] = {"execution": [], "session": []}

    def keep(self, memory: Memory, ask: Ask, args: Mapping[str, object] | None) -> None:
        server, tool = _literal(ask.server_name), _literal(ask.tool_name)
        for alike in _likenesses(ask) if args is None else [args]:
            self._rules[memory].append(ApprovalRule(action="allow", server=server, tool=tool, args=dict(alike)))

    def covers(self, ask: Ask) -> bool:
        rules = self._rules["execution"] + self._rules["session"]
        return any(rule.matches(ask.server_name, ask.tool_name, ask.tool_args) for rule in rules)

    def forget(self, memory: Memory) -> None:
        self._rules[memory].clear()


def _likenesses(ask: Ask) -> list[dict[str, object]]:
    """Returns what the next call must share to be like this one, beside server and tool; one of these is enough.

    Nothing more for a tool. For a command: the program, if that is all it runs; else every word of it.
    """
    command = ask.tool_args.get("cmd")
    if ask.server_name != SHELL_SERVER or not isinstance(command, str):
        return [{}]
    exactly: dict[str, object] = {name: _literal(str(value)) for name, value in ask.tool_args.items()}
    program = command.split(maxsplit=1)[0] if command.strip() else ""
    name = program.rpartition("/")[2]
    if ask.tool_name != "shell" or _SHELL_OPERATORS & set(command) or not _PLAIN_WORD(program) or _RUNS_OTHERS(name):
        return [exactly]
    return [{"cmd": _literal(program)}, {"cmd": _literal(program) + "[ \t]*"}]


_PLAIN_WORD = re.compile(r"[\w./+-]+\Z").match

# Programs whose arguments are programs.
_RUNS_OTHERS = re.compile(
    r"(sudo|doas|su|env|exec|eval|source|\.|command|builtin|nohup|nice|time|timeout|xargs|parallel|find|ssh|watch|"
    r"(ba|da|z|k|c|tc|fi)?sh|busybox|awk|gawk|perl|ruby|node|deno|bun|php|lua|uv|uvx|npx|python[\d.]*)\Z"
).match


def _literal(text: str) -> str:
    """Returns the pattern that matches this text only."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)


class _Request:
    """What requests of both kinds share: who asks for what, and one answer."""

    def __init__(self, ask: Ask, settle: Callable[[bool, str], None], remembered: Remembered) -> None:
        self.id = f"{ask.id}-{ask.ask}"
        self.server_name = ask.server_name
        self.tool_name = ask.tool_name
        self.tool_args: dict[str, Any] = copy.deepcopy(ask.tool_args)
        self._ask = ask
        self._settle = settle
        self._remembered = remembered
        self._outcome = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self} {self._outcome or 'open'}>"

    def __str__(self) -> str:
        """Shows the call. Every character that does not print, or changes the order of others, is escaped."""
        args = ", ".join(f"{name}={value!r}" for name, value in self.tool_args.items())
        return f"{self.server_name}.{self.tool_name}({args})"

    @property
    def open(self) -> bool:
        """Whether it waits for an answer."""
        return not self._outcome

    def close(self, reason: str, *, tell: bool = True) -> None:
        """Ends a request that nobody answered, as a rejection."""
        if self.open:
            self._outcome = f"rejected: {reason}"
            if tell:
                self._settle(False, reason)

    def _accept(self, remember: Memory | None, args: Mapping[str, object] | None) -> None:
        if remember not in (None, "execution", "session"):
            raise InvalidInput("remember", remember, 'use "execution", "session" or None')
        if args is not None and remember is None:
            raise InvalidInput("args", args, "they say what to remember: pass remember= as well")
        self._answer("accepted")
        if remember is not None:
            self._remembered.keep(remember, self._ask, args)
        self._settle(True, "")

    def _reject(self, reason: str | None) -> None:
        self._answer(f"rejected: {reason}" if reason else "rejected")
        self._settle(False, reason or "")

    def _answer(self, outcome: str) -> None:
        if not self.open:
            raise ApprovalClosed(str(self), self._outcome)
        self._outcome = outcome


class ApprovalRequest(_Request):
    """A tool call or shell command that waits for `accept()` or `reject()`; nothing of it has run."""

    async def accept(self, *, remember: Memory | None = None, args: Mapping[str, object] | None = None) -> None:
        """Lets the call run.

        `remember` accepts the next calls like it as well, in this cell ("execution") or until the executor is reset
        or stopped ("session"). Alike are calls of the same tool, and shell commands that run the same one program;
        `args` says otherwise, with patterns as in ApprovalRule.
        """
        self._accept(remember, args)

    async def reject(self, reason: str | None = None) -> None:
        """Refuses the call; the cell sees an ApprovalRejectedError with the reason."""
        self._reject(reason)


class SyncApprovalRequest(_Request):
    """The same for the synchronous API: what `approve=` gets, and what `stream(…, approve=True)` yields."""

    def accept(self, *, remember: Memory | None = None, args: Mapping[str, object] | None = None) -> None:
        """Lets the call run. With `remember`, also the next calls like it: see ApprovalRequest.accept."""
        self._accept(remember, args)

    def reject(self, reason: str | None = None) -> None:
        """Refuses the call; the cell sees an ApprovalRejectedError with the reason."""
        self._reject(reason)


def answering(
    steps: Generator[Any, Answer | None, Any], approve: Approve | bool | None, remembered: Remembered
) -> Generator[Any, None, Any]:
    """Passes an execution's events through, and has its questions answered: by `approve`, or where they are yielded."""
    answer: Answer | None = None
    try:
        while True:
            try:
                event = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = None
            if isinstance(event, Ask):
                answer = yield from _ask(event, approve, remembered)
            else:
                yield event
    finally:
        steps.close()
        remembered.forget("execution")


def _ask(ask: Ask, approve: Approve | bool | None, remembered: Remembered) -> Generator[Any, None, Answer]:
    answers: list[Answer] = []
    request = SyncApprovalRequest(
        ask, lambda accepted, reason: answers.append(answer_to(ask, accepted, reason)), remembered
    )
    if remembered.covers(ask):
        request.accept()
    elif callable(approve):
        verdict = approve(request)
        if request.open and verdict is True:
            request.accept()
        elif request.open:
            request.reject(verdict if isinstance(verdict, str) else None)
    elif approve:
        yield request
    request.close("it was not answered before the next output was asked for" if approve else "nobody is asked here")
    return answers[0]


def answer_to(ask: Ask, accepted: bool, reason: str) -> Answer:
    """Returns the answer that carries a decision. A command that is accepted is run by the kernel itself."""
    if accepted and ask.server_name != SHELL_SERVER:
        return Answer(ask.id, ask.ask, False, f"there is no server {ask.server_name!r} here")
    return Answer(ask.id, ask.ask, accepted, reason)
