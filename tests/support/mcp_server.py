"""What the tests of the MCP server share: servers as processes, and the SDK's client in both generations."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, ImageContent, ResourceLink, TextContent
from tests.support.bounded import DEADLINE as DEADLINE
from tests.support.bounded import run as run

# The protocol up to 2025-11-25, with a handshake, and the one after it.
GENERATIONS = ("legacy", "2026-07-28")


@dataclass(frozen=True)
class Served:
    """A server that listens for HTTP."""

    url: str
    token: str
    workspace: Path
    process: subprocess.Popen[str]


def command(workspace: Path, *words: str) -> list[str]:
    """Returns the command line of a server."""
    return [sys.executable, "-m", "kernelbox", "mcp", "--workspace", str(workspace), *words]


@contextlib.contextmanager
def serving(workspace: Path, *words: str, **env: str) -> Iterator[Served]:
    """Starts a server for HTTP and ends it."""
    process = subprocess.Popen(
        command(workspace, "--http", "127.0.0.1:0", *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            said = json.loads(process.stdout.readline())
            yield Served(said["url"], said.get("token", ""), workspace, process)
        finally:
            process.terminate()
            process.wait(DEADLINE)


@contextlib.asynccontextmanager
async def http_client(served: Served, mode: str = "2026-07-28", **options: Any) -> AsyncIterator[Client]:
    """Connects a client to a server that listens."""
    headers = {"Authorization": f"Bearer {served.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE) as connection:
        transport = streamable_http_client(served.url, http_client=connection)
        async with Client(transport, mode=mode, **options) as client:
            yield client


def stdio_client(
    workspace: Path, *words: str, mode: str = "2026-07-28", env: dict[str, str] | None = None, **options: Any
) -> Client:
    """Returns a client that starts a server of its own."""
    program, *arguments = command(workspace, *words)
    passed = {name: value for name, value in os.environ.items() if name.startswith(("KERNELBOX_", "PYTHON"))}
    parameters = StdioServerParameters(command=program, args=arguments, env={**passed, **(env or {})})
    return Client(parameters, mode=mode, **options)


async def call(client: Client, tool: str, **arguments: Any) -> CallToolResult:
    """Calls a tool, whatever comes of it."""
    return await client.call_tool(tool, arguments)


async def text(client: Client, tool: str, **arguments: Any) -> str:
    """Calls a tool that must succeed; returns its text."""
    result = await call(client, tool, **arguments)
    assert not result.is_error, result
    return text_of(result)


async def failure(client: Client, tool: str, **arguments: Any) -> str:
    """Calls a tool that must fail; returns its text."""
    result = await call(client, tool, **arguments)
    assert result.is_error, result
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def pictures(result: CallToolResult) -> list[ImageContent]:
    return [block for block in result.content if isinstance(block, ImageContent)]


def links(result: CallToolResult) -> list[ResourceLink]:
    return [block for block in result.content if isinstance(block, ResourceLink)]


class Person:
    """Answers what a server asks, and keeps what was asked."""

    def __init__(self, action: str = "accept", **content: Any) -> None:
        self.asked: list[str] = []
        self._action = action
        self._content = content

    async def __call__(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action=self._action, content=self._content or None)  # type: ignore[arg-type]


def begin_call(tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Returns the messages with which a client of the older protocol calls a tool."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    ]


def send(stream: IO[bytes], *messages: dict[str, Any]) -> None:
    """Writes messages as they travel over stdio."""
    for message in messages:
        stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()
