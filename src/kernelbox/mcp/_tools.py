"""How a function becomes a tool: its description, its annotations, and errors that a model can read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import Field

from kernelbox.base._errors import KernelBoxError

# A day: a cell that needs longer is asked for in the background.
_MOST_SECONDS = 86_400

Seconds = Annotated[float, Field(gt=0, le=_MOST_SECONDS, description="seconds until the code is interrupted")]


# Tools by their names: sets that have one in common add it once.
Tools = dict[str, Tool]


def add_tool(
    tools: Tools,
    function: Callable[..., Awaitable[Any]],
    annotations: ToolAnnotations,
    *,
    structured: bool = False,
) -> None:
    """Adds a function under its name, with its docstring as the description; it takes no arguments but its own."""
    tool = Tool.from_function(
        _translating(function),
        name=function.__name__,
        description=inspect.getdoc(function),
        annotations=annotations,
        structured_output=structured,
    )
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = arguments.model_json_schema(by_alias=True)
    tools[tool.name] = tool


def _translating(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Returns a function whose sentences about wrong input and lost kernels reach the client."""

    @functools.wraps(function)
    async def call(*args: Any, **named: Any) -> Any:
        try:
            return await function(*args, **named)
        except KernelBoxError as exc:
            raise ToolError(str(exc)) from exc

    return call
