"""One task done three ways, in characters that a model has to read for it.

The task: of fifty images that a search returns, name the three with the shortest titles. The server has nine tools.
Raw: all schemas are in the prompt, and the result of the tool as well. Generated sources: the model reads the module
of the tool, writes code, and reads what it prints, as in ipybox. Ours: it searches, reads how the tool is called,
writes the same code and reads what that prints.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mcp import Client, StdioServerParameters

from benchmarks._measure import Row
from benchmarks.bench_tools import SERVER
from kernelbox import CodeExecutor, generate_mcp_sources

_ARGUMENTS = {"query": "neural topic models", "count": 50}

_CODE = """
from mcptools.images.image_search import Params, run
items = run(Params(query="neural topic models", count=50)).items
print(sorted((item.title for item in items), key=len)[:3])
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as directory:
        here = os.getcwd()
        os.chdir(directory)
        try:
            raw, sources, ours = asyncio.run(_count())
        finally:
            os.chdir(here)
    yield Row("one task, raw results in the prompt", f"{raw:,} characters")
    yield Row("the same with generated sources", f"{sources:,} characters", ratio=f"{raw / sources:.0f} × less")
    yield Row("the same with `mcptools.search`", f"{ours:,} characters", ratio=f"{raw / ours:.0f} × less")


async def _count() -> tuple[int, int, int]:
    parameters = {"command": sys.executable, "args": [SERVER]}
    await generate_mcp_sources("images", parameters, "mcptools")
    async with Client(StdioServerParameters(command=sys.executable, args=[SERVER])) as client:
        listed = (await client.list_tools()).model_dump(by_alias=True, exclude_none=True, mode="json")
        result = (await client.call_tool("image_search", _ARGUMENTS)).model_dump(by_alias=True, mode="json")
    raw = len(json.dumps(listed["tools"])) + len(json.dumps(result["content"]))
    async with CodeExecutor() as executor:
        printed = (await executor.execute(_CODE)).text or ""
        found = (await executor.execute("import mcptools\nmcptools.search('search for images', limit=3)")).text or ""
        shown = (await executor.execute("mcptools.help('images.image_search')")).text or ""
    module = await asyncio.to_thread(Path("mcptools/images/image_search.py").read_text)
    listing = "\n".join(tool["name"] for tool in listed["tools"])
    return raw, len(listing) + len(module) + len(printed), len(found) + len(shown) + len(printed)
