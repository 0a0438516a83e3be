"""The gate: decides every tool call and shell command that a cell asks for, in both APIs.

These decide, in this order: a rule that denies; a remembered answer; a rule that asks; a rule that allows; the
policy's default; and last the caller's habit, to ask or to accept. The order of rules does not matter.
"""

from __future__ import annotations

import logging

from kernelbox.base._safe_text import show_call
from kernelbox.base._text import spell_out
from kernelbox.core.approvals._memory import Memory
from kernelbox.core.approvals._requests import ApprovalRequest, Verdict, settle
from kernelbox.wire._messages import HOST_SERVER, SHELL_SERVER, Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Literal

    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.approvals._memory import Sessions
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._messages import Ask

    Habit = Literal["ask", "accept"]

_log = logging.getLogger("kernelbox")

# Characters of all pending asks of a cell, which take the host's memory: 5,000 for each, and its arguments.
_MOST_WAITING = 64_000_000
_SIZE_OF_ASK = 5_000
_TOO_MUCH = "the cell asks for too much at once; ask again when some of it has been answered"


class Waiting:
    """The pending asks of one execution, by the memory that they take."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._total = 0

    def __repr__(self) -> str:
        return f"<Waiting {len(self._sizes)} asks, {self._total:,} characters>"

    def add(self, ask: Ask) -> Answer | None:
        """Counts an ask; returns the answer that refuses it, if there is no room for it."""
        size = _SIZE_OF_ASK + len(repr(ask.tool_args))
        if self._total + size > _MOST_WAITING:
            return Answer(ask.id, ask.ask, False, _TOO_MUCH)
        self._sizes[ask.ask] = size
        self._total += size
        return None

    def remove(self, number: int) -> None:
        """Forgets an ask."""
        self._total -= self._sizes.pop(number, 0)


class Gate:
    """Decides the asks of one execution in one kernel. Answers remembered for the execution end with the gate."""

    def __init__(
        self,
        record: KernelRecord,
        policy: ApprovalPolicy,
        sessions: Sessions,
        *,
        shell: Habit,
        tools: Habit,
        host: Habit = "ask",
    ) -> None:
        """`shell`, `tools` and `host` are the caller's habits, for what the policy leaves open."""
        self._record = record
        self._policy = policy
        self._sessions = sessions
        self._execution = Memory()
        self._shell = shell
        self._tools = tools
        self._host = host
        self._waiting = Waiting()

    async def decide(
        self,
        ask: Ask,
        present: Callable[[ApprovalRequest], Awaitable[None]],
        call: Callable[[Ask], Awaitable[Answer]],
    ) -> Answer:
        """Returns the one answer to an ask; for an accepted tool call, what `call` returns.

        If the application must be asked, `present` gets a request, and returns when it is answered. A request that it
        leaves open is rejected.
        """
        refusal = self._waiting.add(ask)
        if refusal is not None:
            return refusal
        try:
            verdict = self.look_up(ask)
            if verdict is None:
                request = ApprovalRequest.of(ask)
                try:
                    await present(request)
                finally:
                    verdict = settle(request)
            return self.conclude(ask, verdict) or await call(ask)  # cancelling `decide` cancels it
        finally:
            self._waiting.remove(ask.ask)

    def look_up(self, ask: Ask) -> Verdict | None:
        """Returns the verdict of rules, memory and habit; None if the application must be asked."""
        remembered = self._execution.covers(ask) or self._sessions.covers(self._record, ask)
        action, reason = self._policy.decide(ask.server_name, ask.tool_name, ask.tool_args, remembered=remembered)
        if action is None:
            habit = {SHELL_SERVER: self._shell, HOST_SERVER: self._host}.get(ask.server_name, self._tools)
            action = "allow" if habit == "accept" else "ask"
        return None if action == "ask" else Verdict(action == "allow", reason)

    def conclude(self, ask: Ask, verdict: Verdict) -> Answer | None:
        """Returns the answer that follows from a verdict, and remembers it; None for a call to be made."""
        if verdict.remember == "execution":
            self._execution.keep(ask, verdict.patterns)
        elif verdict.remember == "session":
            self._sessions.keep(self._record, ask, verdict.patterns)
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s: %s", show_call(ask.server_name, ask.tool_name, ask.tool_args), spell_out(str(verdict)))
        if not verdict.accepted:
            return Answer(ask.id, ask.ask, False, verdict.reason)
        return Answer(ask.id, ask.ask, True) if ask.server_name == SHELL_SERVER else None  # the kernel itself runs it
