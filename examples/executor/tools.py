"""Tools of an MCP server, called from code: generated once, approved one by one."""

import asyncio
import sys
from pathlib import Path

from kernelbox import ApprovalRequest, CodeExecutionResult, CodeExecutor, generate_mcp_sources

# A small server; use any other.
SERVER = """
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

server = MCPServer("image_search")

class Image(BaseModel):
    title: str
    url: str

class Found(BaseModel):
    items: list[Image]

@server.tool()
def brave_image_search(query: str, count: int = 10) -> Found:
    "Searches for images."
    return Found(items=[Image(title=f"{query} {n}", url=f"https://example.com/{n}.png") for n in range(count)])

server.run()
"""

CODE = """
from mcptools.brave_search.brave_image_search import Params, Result, run

result: Result = run(Params(query="neural topic models", count=3))
print(f"num results = {len(result.items)}")
"""


async def main() -> None:
    params = {"command": sys.executable, "args": ["-c", SERVER]}
    tools = await generate_mcp_sources("brave_search", params, Path("mcptools"))
    assert tools == ["brave_image_search"]

    async with CodeExecutor() as executor:
        async for item in executor.stream(CODE):
            match item:
                case ApprovalRequest():
                    assert item.tool_name == "brave_image_search"
                    assert item.tool_args["query"] == "neural topic models"
                    assert item.tool_args["count"] == 3
                    await item.accept()
                case CodeExecutionResult():
                    assert item.text == "num results = 3"

        found = await executor.execute("import mcptools\nmcptools.search('find images')")
        print(found.text)


asyncio.run(main())
