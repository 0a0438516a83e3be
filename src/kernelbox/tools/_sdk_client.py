"""Opens a session with the SDK, over each transport, and explains the SDK's errors."""

from __future__ import annotations

import json
import logging
from contextlib import AsyncExitStack
from typing import Any

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation, LoggingMessageNotificationParams, ToolListChangedNotification
from pydantic import ValidationError

from kernelbox.base._errors import ToolServerFailed
from kernelbox.tools._bounds import LARGEST_MESSAGE, LONGEST_NOTICE, UNREADABLE, UNREADABLE_MESSAGE, Listener, Words
from kernelbox.tools._http_transport import Elsewhere, connect_events, open_client
from kernelbox.tools._server_process import connect_stdio
from kernelbox.tools._servers import ServerParameters

# The SDK's log messages belong in the application's log, if it keeps one, and not in its terminal.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

# Characters of an error that a server answers with.
_LONGEST_ERROR = 20_000

# How the SDK begins its message about an HTTP answer that it cannot parse.
_NOT_PARSED = ("Failed to parse JSON response: ", "Failed to parse SSE message: ")


async def connecting(stack: AsyncExitStack, server: str, parameters: ServerParameters, listener: Listener) -> Client:
    """Returns a connected client; closing the stack closes it."""

    async def log(params: LoggingMessageNotificationParams) -> None:
        text = params.data if isinstance(params.data, str) else json.dumps(params.data, default=str)
        listener.on_log(params.level, text[:LONGEST_NOTICE])

    async def heed(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            listener.on_change()

    from kernelbox import __version__

    client = Client(
        await _transport(stack, server, parameters, listener),
        client_info=Implementation(name="kernelbox", version=__version__),
        logging_callback=log,
        message_handler=heed,
        log_level="info",
        cache=None,
    )
    try:
        await stack.enter_async_context(client)
    except Exception as exc:
        raise ToolServerFailed(server, listener.words.after(describe(exc))) from exc
    client.session.validate_tool_result = _leave_to_the_cell  # type: ignore[method-assign]  # it has no option for it
    return client


async def _leave_to_the_cell(name: str, result: CallToolResult) -> None:
    """Does not check a result against its schema: the cell does, with the classes made from it.

    The server wrote the schema. References that take forever to follow would stop every session of this process, and
    a malicious pattern would stop the process itself.
    """


async def _transport(stack: AsyncExitStack, server: str, parameters: ServerParameters, listener: Listener) -> Any:
    filled = parameters.filled(server)
    if filled.transport == "stdio":
        return connect_stdio(server, filled, listener)
    client = await stack.enter_async_context(open_client(filled.url, dict(filled.headers), listener.words))
    if filled.transport == "sse":
        return connect_events(server, filled.url, client, listener)
    return streamable_http_client(filled.url, http_client=client, max_sse_event_size=LARGEST_MESSAGE)


def describe(exc: BaseException, words: Words | None = None) -> str:
    """Returns what went wrong with a server as a sentence, without the SDK's wrappings.

    If the connection failed, the server's own output follows.
    """
    after = str if words is None else words.after
    while isinstance(exc, BaseExceptionGroup) and exc.exceptions:
        exc = exc.exceptions[0]
    match exc:
        case MCPError(message="Connection closed"):
            return after("it closed the connection")
        case MCPError(message="Server returned an error response"):
            return after("it refused the request")
        case MCPError(message=message) if message.startswith(_NOT_PARSED):
            said = message.partition(": ")[2]  # our own words, or pages of pydantic's
            return said if said.startswith(UNREADABLE) else UNREADABLE_MESSAGE
        case MCPError(message=message):
            return message[:_LONGEST_ERROR]
        case httpx2.HTTPStatusError():
            return f"it answered with HTTP {exc.response.status_code}"
        case Elsewhere():
            return str(exc)
        case httpx2.ConnectError():
            return f"it cannot be reached: {exc}"
        case RuntimeError():
            return str(exc)[:LONGEST_NOTICE]  # the SDK's own words
        case ValidationError():
            wrong = [f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()[:3]]
            return f"it sent what the protocol does not allow ({'; '.join(wrong)})"[:LONGEST_NOTICE]
        case _:
            return f"{type(exc).__name__}: {exc}"[:LONGEST_NOTICE]
