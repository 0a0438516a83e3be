"""`register_mcp_server`: makes the tools of another MCP server callable from cells."""

from __future__ import annotations

import os
from typing import Any

from mcp_types import CallToolResult

from kernelbox.base._errors import KernelBoxError
from kernelbox.base._shown import show
from kernelbox.mcp.toolsets._tool_results import DEFAULT_BUDGET, answer, fit
from kernelbox.mcp.toolsets._tool_state import ToolState
from kernelbox.tools._generate import generate_mcp_sources

# The package that the generated modules are in, in the workspace, as ipybox has it.
_PACKAGE = "mcptools"

# Characters of a name in the sentence about it.
_LONGEST_NAME = 60


async def register(state: ToolState, server_name: str, server_params: dict[str, Any]) -> CallToolResult:
    """Generates the package of a server and returns the names of its tools."""
    if state.options.sandbox is not None and state.options.approve != "all":
        raise KernelBoxError(
            f"the server {show(server_name, _LONGEST_NAME)} was not added: kernels are sandboxed here, and it would "
            "run outside of the sandbox. Ask the user to add it with `kernelbox tools add` in the workspace, or to "
            "start this server with --approve all"
        )
    names = await generate_mcp_sources(server_name, server_params, os.path.join(state.options.workspace, _PACKAGE))
    return answer(fit("\n".join(names), state.outputs, DEFAULT_BUDGET))
