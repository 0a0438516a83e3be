"""A cell that a CodeExecutor runs: its execution, its images, and the approvals that it waits for."""

from __future__ import annotations

import asyncio
import logging

from kernelbox.core._approvals import ApprovalRequest, Remembered, answer_to
from kernelbox.wire._approvals import SHELL_SERVER
from kernelbox.wire._messages import Ask
from kernelbox.wire._results import OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.api._executor import CodeExecutor
    from kernelbox.core._images import ImageFiles
    from kernelbox.shells._asyncio import Run
    from kernelbox.wire._results import ExecutionResult

_log = logging.getLogger("kernelbox")


class ExecutorCell:
    """A cell that a CodeExecutor runs: its execution, its images and its open approvals."""

    def __init__(self, executor: CodeExecutor, run: Run, images: ImageFiles, ask: bool, exclude: bool) -> None:
        self.run = run
        self.images = images
        self.lines = Lines()
        self.cancelled = False
        self._executor = executor
        self._asks = ask
        self._exclude = exclude
        self._open: dict[int, tuple[ApprovalRequest, asyncio.TimerHandle | None]] = {}

    def take(self, ask: Ask) -> ApprovalRequest | None:
        """Decides about a call, or returns the request that somebody has to answer."""
        action, reason = self._decide(ask)
        _log.info("%s.%s: %s %s", ask.server_name, ask.tool_name, action, reason)
        if action == "ask":
            return self._request(ask)
        self.run.answer(answer_to(ask, action == "allow", reason))
        return None

    def close(self, reason: str) -> None:
        """Ends the requests that nobody has answered."""
        for request, _ in list(self._open.values()):
            request.close(reason)

    def _decide(self, ask: Ask) -> tuple[str, str]:
        executor = self._executor
        remembered = executor._remembered.covers(ask)
        action, reason = executor.approval_policy.decide(
            ask.server_name, ask.tool_name, ask.tool_args, remembered=remembered
        )
        if action == "deny":
            return action, reason
        wanted = executor._approve_shell_cmds if ask.server_name == SHELL_SERVER else executor._approve_tool_calls
        if action == "allow" or not self._asks or (action is None and not wanted):
            return "allow", ""
        return "ask", ""

    def _request(self, ask: Ask) -> ApprovalRequest:
        request = ApprovalRequest(ask, lambda accepted, reason: self._answer(ask, accepted, reason), self._remembered)
        timer = None
        if (seconds := self._executor.approval_timeout) is not None:
            reason = f"no answer within {seconds:g} s"
            timer = asyncio.get_running_loop().call_later(seconds, request.close, reason)
        self._open[ask.ask] = (request, timer)
        if self._exclude:
            self.run.hold()
        return request

    @property
    def _remembered(self) -> Remembered:
        return self._executor._remembered

    def _answer(self, ask: Ask, accepted: bool, reason: str) -> None:
        _, timer = self._open.pop(ask.ask)
        if timer is not None:
            timer.cancel()
        if not self._open:
            self.run.go_on()
        self.run.answer(answer_to(ask, accepted, reason))


class Lines:
    """Puts what a cell shows on lines of its own between what it writes, as in the result's text."""

    def __init__(self) -> None:
        self._at_start = True

    def add(self, item: OutputItem) -> str:
        if not item.text or item.kind == "update_display_data":
            return ""
        if item.kind == "stream":
            self._at_start = item.text.endswith("\n")
            return item.text
        before, self._at_start = "" if self._at_start else "\n", True
        return f"{before}{item.text.rstrip()}\n"


def written(result: ExecutionResult) -> str | None:
    """Returns what an interrupted cell had written, without the traceback of the interrupt."""
    lines = Lines()
    return "".join(lines.add(item) for item in result.outputs if item.kind != "error").rstrip() or None
