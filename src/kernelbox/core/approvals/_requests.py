"""Approval requests: a tool call or shell command as the application sees it, waiting for one answer."""

from __future__ import annotations

from kernelbox.base._errors import ApprovalClosed, InvalidInput
from kernelbox.base._safe_text import show_call
from kernelbox.base._text import spell_out
from kernelbox.base._unique_objects import Handle
from kernelbox.core.approvals._approval_policy import check_patterns
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any, Literal, Self

    from kernelbox.wire._messages import Ask

    Remember = Literal["execution", "session"]
    # True accepts; a string rejects with that reason, anything else without one.
    Approve = Callable[["SyncApprovalRequest"], bool | str | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a request. `patterns` say which calls are remembered; None means exactly the same one."""

    accepted: bool
    reason: str = ""
    remember: Remember | None = None
    patterns: Mapping[str, object] | None = None

    def __str__(self) -> str:
        if self.accepted:
            return "accepted"
        return f"rejected: {self.reason}" if self.reason else "rejected"


class PendingRequest(Handle):
    """The base of both APIs' requests: a call that waits for one answer."""

    def __init__(self, server_name: str, tool_name: str, tool_args: dict[str, Any], *, id: str = "") -> None:
        self.id = id
        self.server_name = server_name
        self.tool_name = tool_name
        # A copy: changes by the application do not change what is shown and decided.
        self.tool_args: dict[str, Any] = _copy(tool_args)
        self.verdict: Verdict | None = None
        self._call = (server_name, tool_name, tool_args)
        self._watchers: list[Callable[[bool], object]] = []

    @classmethod
    def of(cls, ask: Ask) -> Self:
        """Makes the request for what a cell asks."""
        return cls(ask.server_name, ask.tool_name, ask.tool_args, id=f"{ask.id}-{ask.ask}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self} {spell_out(str(self.verdict or 'open'))}>"

    def __str__(self) -> str:
        """Shows the call on one line, for people: escaped, and shortened where it is long. `tool_args` has it whole."""
        return show_call(*self._call)

    @property
    def open(self) -> bool:
        """Whether it waits for an answer."""
        return self.verdict is None

    def close(self, reason: str) -> None:
        """Rejects the call if it has not been answered."""
        if self.open:
            self._settle(Verdict(False, reason))

    def on_decision(self, callback: Callable[[bool], object]) -> None:
        """Calls a function once, when the request is answered or closed, with whether it was accepted.

        If it already is, the function is called at once. Exceptions that it raises are logged.
        """
        if self.verdict is None:
            self._watchers.append(callback)
        else:
            _tell(callback, self.verdict.accepted)

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
        for callback in self._watchers:
            _tell(callback, verdict.accepted)


def settle(request: PendingRequest) -> Verdict:
    """Returns the verdict of a request; one that is still open is rejected."""
    request.close("it was not answered while the cell waited")
    assert request.verdict is not None
    return request.verdict


class ApprovalRequest(PendingRequest):
    """A tool call or shell command that waits for `accept()` or `reject()`; it has not run.

    Tests can make their own requests: the answer is passed to `respond`, as True or False.
    """

    def __init__(
        self,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        respond: Callable[[bool], Awaitable[None]] | None = None,
        *,
        id: str = "",
    ) -> None:
        super().__init__(server_name, tool_name, tool_args, id=id)
        self._respond = respond

    async def response(self) -> bool:
        """Returns whether it is accepted, when it is answered or closed."""
        import asyncio

        decided = asyncio.Event()
        self.on_decision(lambda accepted: decided.set())
        await decided.wait()
        assert self.verdict is not None
        return self.verdict.accepted

    async def accept(self, *, remember: Remember | None = None, args: Mapping[str, object] | None = None) -> None:
        """Lets the call run.

        `remember` accepts the same call again without asking: the same tool with the same arguments, in this cell
        ("execution") or as long as the kernel's process lives and the executor is not reset or stopped ("session").
        `args` covers more than the same arguments, with patterns as in ApprovalRule; `{}` is every call of the tool.
        """
        self._accept(remember, args)
        if self._respond is not None:
            await self._respond(True)

    async def reject(self, reason: str | None = None) -> None:
        """Refuses the call; the cell sees an ApprovalRejectedError with the reason."""
        self._reject(reason)
        if self._respond is not None:
            await self._respond(False)


class SyncApprovalRequest(PendingRequest):
    """The same for the synchronous API: what `approve=` gets, and what `stream(…, approve=True)` yields."""

    def accept(self, *, remember: Remember | None = None, args: Mapping[str, object] | None = None) -> None:
        """Lets the call run. `remember` and `args` are as for ApprovalRequest.accept."""
        self._accept(remember, args)

    def reject(self, reason: str | None = None) -> None:
        """Refuses the call; the cell sees an ApprovalRejectedError with the reason."""
        self._reject(reason)


def _tell(callback: Callable[[bool], object], accepted: bool) -> None:
    try:
        callback(accepted)
    except Exception:  # the application's own function must not keep the others from being called
        import logging

        logging.getLogger("kernelbox").exception("a function passed to on_decision has failed")


def _copy(value: Any) -> Any:
    """Copies a JSON value; the wire has bounded its depth."""
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
