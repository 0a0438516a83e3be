"""Approval requests: a tool call or shell command as the application sees it, waiting for one answer."""

from __future__ import annotations

from kernelbox.base._errors import ApprovalClosed, InvalidInput
from kernelbox.base._shown import show_call
from kernelbox.base._text import spell_out
from kernelbox.core._policy import check_patterns
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal

    from kernelbox.wire._messages import Ask

    Remember = Literal["execution", "session"]
    # True accepts; a string rejects with that reason, anything else without one.
    Approve = Callable[["SyncApprovalRequest"], bool | str | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a request. `patterns` say which calls are remembered; None means the very same one."""

    accepted: bool
    reason: str = ""
    remember: Remember | None = None
    patterns: Mapping[str, object] | None = None

    def __str__(self) -> str:
        if self.accepted:
            return "accepted"
        return f"rejected: {self.reason}" if self.reason else "rejected"


class Request:
    """What requests of both APIs share: who asks for what, and one answer."""

    def __init__(self, ask: Ask) -> None:
        self.id = f"{ask.id}-{ask.ask}"
        self.server_name = ask.server_name
        self.tool_name = ask.tool_name
        # A copy: what the application does with it does not change what is shown and decided.
        self.tool_args: dict[str, Any] = _copy(ask.tool_args)
        self.verdict: Verdict | None = None
        self._ask = ask
        self._on_verdict: Callable[[], object] = lambda: None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self} {spell_out(str(self.verdict or 'open'))}>"

    def __str__(self) -> str:
        """Shows the call on one line, for people: escaped, and shortened where it is long. `tool_args` has it whole."""
        return show_call(self._ask.server_name, self._ask.tool_name, self._ask.tool_args)

    @property
    def open(self) -> bool:
        """Whether it waits for an answer."""
        return self.verdict is None

    def close(self, reason: str) -> None:
        """Rejects the call if it has not been answered."""
        if self.open:
            self._settle(Verdict(False, reason))

    def watch(self, on_verdict: Callable[[], object]) -> None:
        """Has a function called when the request is answered or closed."""
        self._on_verdict = on_verdict

    def _accept(self, remember: Remember | None, args: Mapping[str, object] | None) -> None:
        if remember not in (None, "execution", "session"):
            raise InvalidInput("remember", remember, 'use "execution", "session" or None')
        if args is not None and remember is None:
            raise InvalidInput("args", args, "they say what to remember: pass remember= as well")
        self._settle(Verdict(True, "", remember, None if args is None else check_patterns(args)))

    def _reject(self, reason: str | None) -> None:
        if reason is not None and not isinstance(reason, str):
            raise InvalidInput("the reason", reason, "use a string or None")
        self._settle(Verdict(False, reason or ""))

    def _settle(self, verdict: Verdict) -> None:
        if self.verdict is not None:
            raise ApprovalClosed(str(self), spell_out(str(self.verdict)))
        self.verdict = verdict
        self._on_verdict()


class ApprovalRequest(Request):
    """A tool call or shell command that waits for `accept()` or `reject()`; nothing of it has run."""

    async def accept(self, *, remember: Remember | None = None, args: Mapping[str, object] | None = None) -> None:
        """Lets the call run.

        `remember` accepts the same call again without asking: the same tool with the same arguments, in this cell
        ("execution") or as long as the kernel's process lives and the executor is not reset or stopped ("session").
        `args` covers more than the same arguments, with patterns as in ApprovalRule; `{}` is every call of the tool.
        """
        self._accept(remember, args)

    async def reject(self, reason: str | None = None) -> None:
        """Refuses the call; the cell sees an ApprovalRejectedError with the reason."""
        self._reject(reason)


class SyncApprovalRequest(Request):
    """The same for the synchronous API: what `approve=` gets, and what `stream(…, approve=True)` yields."""

    def accept(self, *, remember: Remember | None = None, args: Mapping[str, object] | None = None) -> None:
        """Lets the call run. `remember` and `args` are as for ApprovalRequest.accept."""
        self._accept(remember, args)

    def reject(self, reason: str | None = None) -> None:
        """Refuses the call; the cell sees an ApprovalRejectedError with the reason."""
        self._reject(reason)


def _copy(value: Any) -> Any:
    """Copies a JSON value; the wire has bounded its depth."""
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
