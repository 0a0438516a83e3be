"""The options of the MCP server, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kernelbox.core.approvals._approval_policy import ApprovalPolicy
from kernelbox.host.pythons._allowed_pythons import AllowedPythons
from kernelbox.sandbox._sandbox_config import SandboxConfig

Approve = Literal["ask", "all", "none"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]

# Bytes of one message from a client, over either transport.
LARGEST_MESSAGE = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """The options of `kernelbox mcp`, checked; `workspace` is an absolute path."""

    workspace: str
    toolsets: tuple[str, ...] = ("ipybox",)
    approve: Approve = "ask"
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    approval_timeout: float = 300.0
    require_shell_escape: bool = False
    keep_kernels: bool = False
    sandbox: SandboxConfig | None = None
    # The interpreters and packages that clients may choose.
    pythons: AllowedPythons = field(default_factory=AllowedPythons)
    log_level: LogLevel = "WARNING"
    # Whether results are plain text, as ipybox's server has them.
    plain: bool = False
