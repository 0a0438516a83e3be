"""What both sides of an approval must agree on."""

from __future__ import annotations

# The server_name of shell commands, which the kernel itself runs once they are accepted; no MCP server may have it.
SHELL_SERVER = "kernelbox"


# The tool_name of `input()`, of the same server; it is asked only where the client says that it answers.
INPUT_TOOL = "input"


class ToolError(Exception):
    """Raised in the cell when a tool failed, or its server could not be reached; it has the server's words."""


class ApprovalRejectedError(Exception):
    """Raised in the cell when a tool call or shell command was not approved; it did not run."""
