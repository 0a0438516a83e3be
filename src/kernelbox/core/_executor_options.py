"""What a CodeExecutor was made with, as one value: what it asks of its kernel, of each cell, and of the gate."""

from __future__ import annotations

import os

from kernelbox.base._environment import scrubbed_environment
from kernelbox.base._errors import InvalidInput
from kernelbox.core._arguments import check_code, check_language, check_limit
from kernelbox.core._options import KernelOptions
from kernelbox.core.approvals._gate import Gate
from kernelbox.wire._messages import Execute
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from kernelbox.base._limits import Limits
    from kernelbox.core.approvals._memory import Sessions
    from kernelbox.core.approvals._policy import ApprovalPolicy
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.sandbox._sandbox_config import SandboxConfig


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """The arguments of `CodeExecutor`, checked; without a name its kernel is private."""

    name: str | None
    kernel_env: dict[str, str]
    working_dir: Path | None
    images_dir: Path
    approval_timeout: float | None
    approve_tool_calls: bool
    approve_shell_cmds: bool
    require_shell_escape: bool
    approval_policy: ApprovalPolicy
    output_char_limit: int
    report_changes: bool
    sandbox: SandboxConfig | None = None
    limits: Limits | None = None

    def kernel_options(self) -> KernelOptions:
        """Returns what its kernel is opened with; raises InvalidInput for a directory that is not there."""
        if self.working_dir is not None and not os.path.isdir(self.working_dir):
            raise InvalidInput("working_dir", str(self.working_dir), "there is no such directory")
        return KernelOptions(
            cwd=self.working_dir,
            env=scrubbed_environment(self.kernel_env),
            lifetime="process" if self.name is None else "kernel",
            limits=self.limits,
            sandbox=self.sandbox,
            guarded=self.require_shell_escape,
        )

    def request(self, code: str, language: str, output_char_limit: int | None) -> Execute:
        """Returns what is sent to run a cell; raises InvalidInput."""
        return Execute(
            os.urandom(8).hex(),
            check_code(code),
            check_language(language),
            approve_shell=self.approve_shell_cmds or self.approval_policy.concerns_shell(),
            shell_escape_only=self.require_shell_escape,
            restore_cwd="" if self.working_dir is None else str(self.working_dir),
            report_changes=self.report_changes,
            text_limit=check_limit(output_char_limit, self.output_char_limit),
        )

    def gate(self, record: KernelRecord, sessions: Sessions) -> Gate:
        """Returns what decides the asks of one cell."""
        return Gate(
            record,
            self.approval_policy,
            sessions,
            shell="ask" if self.approve_shell_cmds else "accept",
            tools="ask" if self.approve_tool_calls else "accept",
        )
