"""How a function becomes a tool: its description, its annotations, and errors that a model can read.

A tool ends with its client, and names each wrong argument in our own words in place of the library's.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from kernelbox.base._errors import KernelBoxError
from kernelbox.base._safe_text import show

_log = logging.getLogger(__name__)

# Where an HTTP request carries an event that is set when its client has gone.
GONE = "kernelbox.gone"

# Characters of one argument in a line of the log.
_LONGEST_LOGGED = 80

# A day: a cell that needs longer is asked for in the background.
_MOST_SECONDS = 86_400

Seconds = Annotated[float, Field(gt=0, le=_MOST_SECONDS, description="seconds until the code is interrupted")]


# Tools by their names: sets that have one in common add it once.
Tools = dict[str, Tool]


def add_tool(
    tools: Tools, function: Callable[..., Awaitable[Any]], annotations: ToolAnnotations, *, structured: bool = False
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
            _log.info(
                "%s: %s after %.2f s", _describe_call(function.__name__, named), outcome, time.monotonic() - began
            )

    return call


def _compact(result: BaseModel) -> CallToolResult:
    """Returns a structured result, whose text is short: the SDK would put each value on a line of its own."""
    return CallToolResult(
        content=[TextContent(text=result.model_dump_json())], structured_content=result.model_dump(mode="json")
    )


def _describe_call(tool: str, named: dict[str, Any]) -> str:
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


class OwnTool(Tool):
    """A tool of this server."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        try:
            return await _until_gone(context, super().run(arguments, context, convert_result))
        except ToolError as exc:
            match exc.__cause__:
                case ValidationError() as wrong:
                    known = self.parameters.get("properties", {})
                    raise ToolError(f"{self.name}: {describe_errors(wrong.errors(include_url=False), known)}") from exc
                case ToolError() as ours:
                    raise ours from exc  # without the words that the SDK puts before it
            raise


async def _until_gone(context: Any, call: Awaitable[Any]) -> Any:
    """Awaits a call; cancels it when the client of its HTTP request has gone, as stdio's end does for all calls."""
    request = context.request_context.request
    gone: asyncio.Event | None = None if request is None else request.scope.get(GONE)
    if gone is None:
        return await call
    leaving = asyncio.ensure_future(gone.wait())
    try:
        with anyio.CancelScope() as scope:
            leaving.add_done_callback(lambda task: None if task.cancelled() else scope.cancel())
            return await call
    finally:
        leaving.cancel()
    raise ToolError("the client has gone")


# Characters of a wrong value that are shown.
_LONGEST_SHOWN = 60

# What is wanted, by the kinds of errors that the arguments of our tools can have, or by how these begin.
_WANTED = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "literal": "{expected}",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number from {ge:g} on",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number up to {le:g}",
}


def describe_errors(errors: Iterable[ErrorDetails], known: Iterable[str]) -> str:
    """Returns what is wrong with arguments, each once; `known` are the names that they may have."""
    return "; ".join(dict.fromkeys(_describe_error(error, known) for error in errors))


def _describe_error(error: ErrorDetails, known: Iterable[str]) -> str:
    name = str(error["loc"][0]) if error["loc"] else "the arguments"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"there is no argument {name!r}; use {', '.join(known) or 'none'}"
    wanted = _WANTED.get(error["type"]) or _WANTED.get(error["type"].partition("_")[0])
    if wanted is None:
        return f"{name} cannot be {show(error['input'], _LONGEST_SHOWN)}: {error['msg']}"
    return f"{name} is {show(error['input'], _LONGEST_SHOWN)}; use {wanted.format(**error.get('ctx', {}))}"
