"""The tools of ipybox's MCP server, with its names, arguments and defaults; they share one kernel."""

from __future__ import annotations

import contextlib
import os
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field

from kernelbox.base._errors import KernelBoxError, KernelNotFound
from kernelbox.base._safe_text import show
from kernelbox.mcp.toolsets._install_package import install
from kernelbox.mcp.toolsets._running import run_cell
from kernelbox.mcp.toolsets._tool_definition import Seconds, Tools, add_tool
from kernelbox.mcp.toolsets._tool_results import DEFAULT_BUDGET, LEAST_BUDGET, answer, fit
from kernelbox.mcp.toolsets._tool_state import ToolState
from kernelbox.tools._generate import generate_mcp_sources

# Code can change and reach anything.
RUNS_CODE = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)

# The kernel of tools that name none.
DEFAULT_KERNEL = "default"

# The package that the modules for other servers are in, in the workspace, as in ipybox.
_PACKAGE = "mcptools"

# Characters of a server's name in the sentence about it.
_LONGEST_NAME = 60

Code = Annotated[str, Field(description="Python; IPython magics and top-level await work")]
Budget = Annotated[int, Field(ge=LEAST_BUDGET, description="characters returned; what is cut stays readable")]


def add_ipybox_tools(tools: Tools, state: ToolState) -> None:
    """Adds the tools."""

    async def execute_ipython_cell(
        ctx: Context,
        code: Code,
        timeout: Seconds = 120,  # noqa: ASYNC109  # ipybox's name for it
        max_output_chars: Budget = DEFAULT_BUDGET,
    ) -> CallToolResult | InputRequiredResult:
        """Run Python in a stateful IPython kernel.

        Variables, imports and files in memory stay for later calls. Returns what the code printed, the value of the
        last expression, errors with their traceback, and plots as images.
        """
        return await run_cell(
            state, ctx, code, kernel=DEFAULT_KERNEL, seconds=timeout, budget=max_output_chars, paths=True
        )

    async def reset() -> CallToolResult:
        """Restart the kernel: all variables and imports are lost. Files and installed packages stay."""
        with contextlib.suppress(KernelNotFound):  # nothing has run in it
            await state.workplace.restart(DEFAULT_KERNEL)
        return answer("The kernel is fresh: variables, imports and definitions are gone.")

    add_tool(tools, execute_ipython_cell, RUNS_CODE)
    add_shared_tools(tools, state)
    add_tool(tools, reset, ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False))


def add_shared_tools(tools: Tools, state: ToolState) -> None:
    """Adds the tools that other sets have as well."""

    async def install_package(
        package_name: Annotated[str, Field(description="pip requirement, such as `pandas>=2`, or a git+https URL")],
    ) -> CallToolResult:
        """Install a Python package for the kernels. Import it afterwards; no reset is needed."""
        return await install(state, package_name)

    async def register_mcp_server(
        server_name: Annotated[str, Field(description="name of the package to make, such as `github`")],
        server_params: Annotated[
            dict[str, Any],
            Field(description="{command, args, env} or {url, headers}; ${NAME} stands for a variable of the server"),
        ],
    ) -> CallToolResult:
        """Make the tools of another MCP server callable from code, as `mcptools.<server_name>.<tool>.run(Params(…))`.

        Returns the names of its tools.
        """
        if state.options.sandbox is not None and state.options.approve != "all":
            raise KernelBoxError(
                f"the server {show(server_name, _LONGEST_NAME)} was not added: kernels are sandboxed here, and it "
                "would run outside of the sandbox. Ask the user to add it with `kernelbox tools add` in the workspace, "
                "or to start this server with --approve all"
            )
        root = os.path.join(state.options.workspace, _PACKAGE)
        names = await generate_mcp_sources(server_name, server_params, root)
        return answer(fit("\n".join(names), state.outputs, DEFAULT_BUDGET))

    add_tool(tools, install_package, RUNS_CODE)
    add_tool(tools, register_mcp_server, RUNS_CODE)
