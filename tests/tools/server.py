"""A tool server for the tests, written with the SDK: `server.py [http|sse PORT_FILE [PORT]]`, stdio without."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents
from pydantic import BaseModel, Field

server = MCPServer("tests", instructions="A server for tests.\nIt has many tools.")

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c7"
    "2f0d0000000049454e44ae426082"
)


class Item(BaseModel):
    title: str
    url: str


class Found(BaseModel):
    items: list[Item]


@server.tool()
def image_search(
    query: Annotated[str, Field(description="What to look for.")],
    count: Annotated[int, Field(description="How many.", ge=1, le=50)] = 10,
    mode: Literal["fast", "slow"] = "fast",
) -> Found:
    """Searches for images."""
    return Found(items=[Item(title=f"{query} {n} {mode}", url=f"http://x/{n}") for n in range(count)])


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Returns the text."""
    return text


@server.tool(structured_output=False)
def environment(name: str) -> str:
    """Returns a variable of the server's."""
    return os.environ.get(name, "(not set)")


@server.tool(structured_output=False)
def pid() -> str:
    """Returns the server's process."""
    return str(os.getpid())


@server.tool(structured_output=False)
def picture() -> Image:
    """Draws a pixel."""
    return Image(data=PIXEL, format="png")


@server.tool(structured_output=False)
def mixed() -> list[object]:
    """Returns a text, a picture, a resource and a link."""
    return [
        TextContent(type="text", text="words"),
        Image(data=PIXEL, format="png"),
        EmbeddedResource(
            type="resource", resource=TextResourceContents(uri="memo://1", mime_type="text/plain", text="a memo")
        ),
        ResourceLink(type="resource_link", uri="memo://2", name="two"),
    ]


@server.tool(structured_output=False)
def fail(words: str) -> str:
    """Fails."""
    raise ToolError(words)


@server.tool(structured_output=False)
async def report(ctx: Context) -> str:
    """Tells how far it is."""
    await ctx.report_progress(1, 2, "half")
    await ctx.info("a line")
    await ctx.report_progress(2, 2, "done")
    return "reported"


@server.tool(structured_output=False)
async def sample(ctx: Context) -> str:
    """Asks the client for something that it cannot do."""
    await ctx.session.create_message(messages=[], max_tokens=1)
    return "sampled"


def main() -> None:
    if len(sys.argv) == 1:
        server.run("stdio")
        return
    import socket

    import uvicorn

    transport, port_file = sys.argv[1:3]
    app = server.sse_app() if transport == "sse" else server.streamable_http_app()
    sock = socket.create_server(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0))
    Path(port_file).write_text(str(sock.getsockname()[1]))
    asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
