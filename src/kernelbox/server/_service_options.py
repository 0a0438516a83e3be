"""What a server is started with, as one value."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kernelbox.core.approvals._policy import ApprovalPolicy
from kernelbox.server.http._callers import Token, tokens_from_env

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.store._record import Lifetime
    from kernelbox.mcp._mcp_options import McpOptions
    from kernelbox.sandbox._sandbox_config import SandboxConfig

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """The options of `kernelbox serve`. Without tokens, only requests that come over loopback or a Unix socket are
    answered; limits of 0 are none.
    """

    workspace: str = field(default_factory=os.getcwd)
    tokens: tuple[Token, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    approval_timeout: float = 300.0
    # Whether kernels stay when the server ends, or end with its process, however that ends.
    lifetime: Lifetime = "kernel"
    # What confines kernels; then none without it is used.
    sandbox: SandboxConfig | None = None
    # What MCP is served with at /mcp; without it, it is not served.
    mcp: McpOptions | None = None
    max_kernels: int = 1000
    # Cells that wait or run in one kernel, and in all.
    max_queue: int = 64
    max_running: int = 1000
    # Bytes of a request, and of a file that is sent.
    max_body: int = 16 * MEBIBYTE
    max_upload: int = 1024 * MEBIBYTE
    # Seconds that the next part of a request may take to come; all may take more, by how much has come.
    body_timeout: float = 30.0

    @classmethod
    def from_env(cls) -> ServiceOptions:
        """Returns the options of an application that another program than ours serves."""
        return cls(tokens=tokens_from_env())
