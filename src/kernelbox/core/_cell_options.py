"""What a cell is run with, as one value: how it is sent, how much of it is kept, and who answers its questions."""

from __future__ import annotations

import os

from kernelbox.core._arguments import check_code
from kernelbox.wire._messages import Execute
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from kernelbox.core.approvals._gate import Habit
    from kernelbox.core.approvals._policy import ApprovalPolicy
    from kernelbox.host.files._home import Home
    from kernelbox.wire._messages import Language

    # What happens to a request that the application would be asked about.
    Asking = Literal["show", "accept", "reject"]


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The options of one cell; `timeout` is in seconds, None for no limit, and a `text_limit` of 0 keeps all text.

    `images` is the directory for images, or the home that has one. `describe` says why images cannot be written, where
    the caller may not know the directory.

    `shell` and `tools` decide the shell commands and tool calls that the policy leaves open. A request for an answer
    waits `patience` seconds. With `stop_clock` this time does not count for the timeout. Where `asking` is "accept"
    or "reject" no request is shown, and `unasked` is the reason for rejecting.

    `raw` is for front ends: nothing is kept, events are the kernel's own messages, and `input()` is a question.
    """

    language: Language = "python"
    timeout: float | None = None
    text_limit: int = 0
    images: str | Home | None = None
    describe: Callable[[Exception], str] | None = None
    report_changes: bool = False
    keep_outputs: bool = True
    restore_cwd: str = ""
    policy: ApprovalPolicy | None = None
    shell: Habit = "ask"
    tools: Habit = "ask"
    asking: Asking = "show"
    unasked: str = ""
    patience: float | None = None
    stop_clock: bool = False
    guarded: bool = False
    raw: bool = False

    def request(self, code: str) -> Execute:
        """Returns what is sent to run code; raises InvalidInput."""
        return Execute(
            os.urandom(8).hex(),
            check_code(code),
            self.language,
            text_limit=self.text_limit,
            approve_shell=self.shell == "ask" or (self.policy is not None and self.policy.concerns_shell()),
            shell_escape_only=self.guarded,
            restore_cwd=self.restore_cwd,
            report_changes=self.report_changes,
        )
