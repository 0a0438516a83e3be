"""What a server is started with, as one value."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kernelbox.core.approvals._approval_policy import ApprovalPolicy
from kernelbox.host.pythons._allowed_pythons import AllowedPythons
from kernelbox.server.http._callers import Token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.store._record import Lifetime
    from kernelbox.mcp._mcp_options import McpOptions
    from kernelbox.sandbox._sandbox_config import SandboxConfig

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """The options of `kernelbox serve`. Without tokens, only requests that come over loopback or a Unix socket are
    answered; a limit of 0 means no limit.
    """

    workspace: str = field(default_factory=os.getcwd)
    tokens: tuple[Token, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    approval_timeout: float = 300.0
    # Whether kernels outlive the server ("kernel"), or end with its process.
    lifetime: Lifetime = "kernel"
    # The sandbox of kernels; when set, unsandboxed kernels are rejected.
    sandbox: SandboxConfig | None = None
    # The interpreters and packages that callers may choose.
    pythons: AllowedPythons = field(default_factory=AllowedPythons)
    # What MCP is served with at /mcp; without it, it is not served.
    mcp: McpOptions | None = None
    max_kernels: int = 1000
    # Cells that wait or run in one kernel, and in all kernels.
    max_queue: int = 64
    max_running: int = 1000
    # Bytes of a request body, and of an uploaded file.
    max_body: int = 16 * MEBIBYTE
    max_upload: int = 1024 * MEBIBYTE
    # Seconds to wait for the next part of a request body; the time for all parts grows with what has arrived.
    body_timeout: float = 30.0
