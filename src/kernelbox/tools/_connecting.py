"""How a session is opened with the SDK, over each transport; the only module beside `_stdio` that knows the SDK."""

from __future__ import annotations

import json
import logging
from contextlib import AsyncExitStack

import httpx2
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation, LoggingMessageNotificationParams
from pydantic import ValidationError

from kernelbox.base._errors import ToolServerFailed
from kernelbox.tools._stdio import Words, connect_stdio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kernelbox.tools._parameters import ServerParameters

# What the SDK remarks is for the application's log, if it keeps one, and not for its terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())

# Seconds for HTTP requests to be taken; how long a tool may run is the cell's affair.
_HTTP_PATIENCE = 30.0

# Characters of one line of a server's log, and of an error.
_LONGEST_LOG = 2_000


async def connecting(
    stack: AsyncExitStack,
    server: str,
    parameters: ServerParameters,
    on_end: Callable[[], None],
    on_log: Callable[[str, str], None],
) -> Client:
    """Returns a connected client, whose end is the stack's."""
    words = Words()
    transport = await _transport(stack, server, parameters, words, on_end)

    async def log(params: LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else json.dumps(params.data, default=str)
        on_log(params.level, text[:_LONGEST_LOG])

    from kernelbox import __version__

    client = Client(
        transport,
        client_info=Implementation(name="kernelbox", version=__version__),
        logging_callback=log,
        log_level="info",
        cache=None,
    )
    try:
        return await stack.enter_async_context(client)
    except Exception as exc:
        said = str(words)
        raise ToolServerFailed(server, describe(exc) + (f"; it said: {said}" if said else "")) from exc


async def _transport(
    stack: AsyncExitStack, server: str, parameters: ServerParameters, words: Words, on_end: Callable[[], None]
) -> Any:
    filled = parameters.filled(server)
    if filled.transport == "stdio":
        return connect_stdio(server, filled, words, on_end)
    headers = dict(filled.headers)
    if filled.transport == "sse":
        return sse_client(filled.url, headers=headers, timeout=_HTTP_PATIENCE, sse_read_timeout=None)  # type: ignore[arg-type]  # None is httpx's word for no limit
    timeout = httpx2.Timeout(_HTTP_PATIENCE, read=None)
    client = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=timeout))
    return streamable_http_client(filled.url, http_client=client)


def describe(exc: BaseException) -> str:
    """Returns what went wrong between us and a server, as a sentence without the SDK's wrappings."""
    while isinstance(exc, BaseExceptionGroup) and exc.exceptions:
        exc = exc.exceptions[0]
    if isinstance(exc, MCPError):
        return "it closed the connection" if exc.message == "Connection closed" else exc.message
    if isinstance(exc, httpx2.HTTPStatusError):
        return f"it answered with HTTP {exc.response.status_code}"
    if isinstance(exc, httpx2.ConnectError):
        return f"it cannot be reached: {exc}"
    if isinstance(exc, RuntimeError):
        return str(exc)[:_LONGEST_LOG]  # the SDK's own words
    if isinstance(exc, ValidationError):
        wrong = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()[:3]]
        return f"it sent what the protocol does not allow ({'; '.join(wrong)})"[:_LONGEST_LOG]
    return f"{type(exc).__name__}: {exc}"[:_LONGEST_LOG]
