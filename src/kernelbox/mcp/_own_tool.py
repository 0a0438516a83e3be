"""A tool as ours are: it ends with its client, and says in our words what is wrong with its arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import ValidationError

from kernelbox.mcp._http_requests import GONE
from kernelbox.mcp._wrong_arguments import describe


class OwnTool(Tool):
    """A tool of this server."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        try:
            return await _until_gone(context, super().run(arguments, context, convert_result))
        except ToolError as exc:
            match exc.__cause__:
                case ValidationError() as wrong:
                    known = self.parameters.get("properties", {})
                    raise ToolError(f"{self.name}: {describe(wrong.errors(include_url=False), known)}") from exc
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
