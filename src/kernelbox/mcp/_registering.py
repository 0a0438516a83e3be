"""`register_mcp_server`: makes the tools of another MCP server callable from cells."""

from __future__ import annotations

import importlib
import os
from typing import Any

from mcp_types import CallToolResult

from kernelbox.base._errors import KernelBoxError
from kernelbox.mcp._results import answer
from kernelbox.mcp._state import State

# The package that the generated modules are in, in the workspace, as ipybox has it.
_PACKAGE = "mcptools"


async def register(state: State, server_name: str, server_params: dict[str, Any]) -> CallToolResult:
    """Generates the package of a server and returns the names of its tools."""
    generate = getattr(importlib.import_module("kernelbox"), "generate_mcp_sources", None)
    if generate is None:
        raise KernelBoxError("this version of kernelbox cannot call the tools of other MCP servers from code")
    names = await generate(server_name, server_params, os.path.join(state.options.workspace, _PACKAGE))
    return answer("\n".join(names))
