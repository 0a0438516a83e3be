"""The options of a cell, as one value: how it is sent, how much is kept, and who answers its questions."""

from __future__ import annotations

import os

from kernelbox.core._arguments import check_budget, check_code, check_language, check_output_limit, check_timeout
from kernelbox.core._images import choose_images_dir
from kernelbox.wire._messages import Execute
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, Protocol

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.core._images import ImageFiles
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core.approvals._approval_gate import Habit
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy
    from kernelbox.core.cells._host_functions import HostFunctions, Tools
    from kernelbox.host.files._home import Home
    from kernelbox.wire._messages import Language
    from kernelbox.wire._results import ExecutionResult

    # What happens to a request that the application would be asked about.
    Asking = Literal["show", "accept", "reject"]

    class AtKeyboard(Protocol):
        """A person at a keyboard, who answers `input()` and debuggers and sees what IPython shows in its front end."""

        def read_line(self, prompt: str, *, password: bool) -> str | None:
            """Returns what was typed; None if the cell was interrupted instead."""

        def take_payload(self, content: dict[str, object]) -> None: ...


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The options of one cell; `timeout` is in seconds, None for no limit, and a `text_limit` of 0 keeps all text.

    `budget` is how many characters the result's `text` may have, 0 for any number: what matters most is kept.

    `images` is the directory for images, or the home that has one. For callers that must not know the directory,
    `describe` explains why images cannot be written, and `address` is how the text names them.

    `shell` and `tools` decide the shell commands and tool calls that the policy leaves open. A request for an answer
    waits `patience` seconds. With `stop_clock` this time does not count for the timeout. If `asking` is "accept" or
    "reject", no request is shown, and `unasked` is the reason for rejecting.

    `functions` are those of the application that the cell may call, and `host` decides calls that the policy leaves
    open.

    `person` answers `input()` in the blocking shell.

    `raw` is for front ends: nothing is kept, events are the kernel's own messages, and `input()` is a question.
    """

    language: Language = "python"
    timeout: float | None = None
    text_limit: int = 0
    images: str | Home | None = None
    describe: Callable[[Exception], str] | None = None
    address: Callable[[str], str] = str
    budget: int = 0
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
    functions: HostFunctions | None = None
    host: Habit = "accept"
    person: AtKeyboard | None = None

    def conclude(self, result: ExecutionResult, kernel: KernelHandle, images: ImageFiles | None) -> None:
        """Gives a result its kernel and images, and a text that fits the budget."""
        record = kernel.record
        result.kernel_id, result.name, result.home = record.kernel_id, record.name, kernel.config.home
        if record.kernel_id in kernel.openings:
            kernel.openings.discard(record.kernel_id)
            result.opened = True
        if images is not None and images.seen:
            images.conclude(result, self.text_limit)
        if self.budget and len(result.text) > self.budget:
            from kernelbox.wire.results._shortening import shorten

            result.text = shorten(result.text, self.budget)
            result.truncated = True
        if result.truncated and result.execution_id:
            from kernelbox.core.cells._kept_output import KeptOutput  # few results are cut

            result.kept = KeptOutput.of(kernel.config, record, result.execution_id)

    def request(self, code: str) -> Execute:
        """Returns the message that runs code; raises InvalidInput."""
        return Execute(
            os.urandom(8).hex(),
            check_code(code),
            self.language,
            text_limit=self.text_limit,
            approve_shell=self.shell == "ask" or (self.policy is not None and self.policy.concerns_shell()),
            shell_escape_only=self.guarded,
            restore_cwd=self.restore_cwd,
            report_changes=self.report_changes,
            allow_stdin=self.person is not None,
            payloads=self.person is not None,
            functions=[] if self.functions is None else self.functions.described,
        )


def choose_tools(tools: Tools | None) -> HostFunctions | None:
    """Returns the functions that cells may call; raises InvalidInput."""
    if tools is None:
        return None
    from kernelbox.core.cells._host_functions import check_tools  # few cells have any, and it is slow to import

    return check_tools(tools)


def cell_options(
    config: KernelBoxConfig,
    home: Home,
    *,
    language: object = "python",
    timeout: float | None = None,
    images_dir: str | os.PathLike[str] | None = None,
    output_char_limit: int | None = None,
    budget: int | None = None,
    policy: ApprovalPolicy | None = None,
    shell: Habit = "accept",
    asking: Asking = "show",
    unasked: str = "",
    functions: HostFunctions | None = None,
    host: Habit = "accept",
    person: AtKeyboard | None = None,
) -> CellOptions:
    """Checks the options of a caller and returns them as one value; None means the configured default."""
    return CellOptions(
        check_language(language),
        check_timeout(timeout, config.execution_timeout),
        check_output_limit(output_char_limit, config.output_char_limit),
        home if images_dir in (None, "") else choose_images_dir(images_dir),
        budget=check_budget(budget),
        policy=policy,
        shell=shell,
        asking=asking,
        unasked=unasked,
        functions=functions,
        host=host,
        person=person,
    )
