"""How a function becomes a tool: its description, its annotations, and errors that a model can read."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from kernelbox.base._errors import KernelBoxError
from kernelbox.base._shown import show
from kernelbox.mcp._own_tool import OwnTool

_log = logging.getLogger(__name__)

# Characters of one argument in a line of the log.
_LONGEST_LOGGED = 80

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
    tool = OwnTool.from_function(
        _translating(function, structured),
        name=function.__name__,
        description=" ".join((function.__doc__ or "").split()),
        annotations=annotations,
        structured_output=structured,
    )
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = _without_titles(arguments.model_json_schema(by_alias=True))
    tool.fn_metadata.output_schema = _without_titles(tool.fn_metadata.output_schema)
    tools[tool.name] = tool


def _without_titles(schema: Any) -> Any:
    """Returns a schema without the titles that pydantic makes of names: a model reads the names themselves."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))  # a property of that name has a schema
    }


def _translating(function: Callable[..., Awaitable[Any]], structured: bool) -> Callable[..., Awaitable[Any]]:
    """Returns a function whose sentences about wrong input and lost kernels reach the client."""

    @functools.wraps(function)
    async def call(**named: Any) -> Any:
        began, outcome = time.monotonic(), "cancelled"
        try:
            result = await function(**named)
            outcome = "failed" if getattr(result, "is_error", False) else "done"
            return _compact(result) if structured else result
        except KernelBoxError as exc:
            outcome = f"failed: {exc}"
            raise ToolError(str(exc)) from exc
        finally:
            _log.info("%s: %s after %.2f s", _describe(function.__name__, named), outcome, time.monotonic() - began)

    return call


def _compact(result: BaseModel) -> CallToolResult:
    """Returns a structured result, whose text is short: the SDK would put each value on a line of its own."""
    return CallToolResult(
        content=[TextContent(text=result.model_dump_json())], structured_content=result.model_dump(mode="json")
    )


def _describe(tool: str, named: dict[str, Any]) -> str:
    """Returns a call for the log: of code and texts the length, of parameters with secrets the name."""
    shown = []
    for name, value in named.items():
        if name in ("code", "text"):
            shown.append(f"{name}: {len(value):,} characters")
        elif isinstance(value, str | int | float):
            shown.append(f"{name}={show(value, _LONGEST_LOGGED)}")
        elif isinstance(value, dict):
            shown.append(name)
    return f"{tool}({', '.join(shown)})"
