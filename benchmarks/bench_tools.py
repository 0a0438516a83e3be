"""Tools called from cells: what the way through kernel and gate adds to a call, imports, generation."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mcp import Client, StdioServerParameters

from benchmarks._measure import Row, percentile, show
from kernelbox import CodeExecutor, generate_mcp_sources

SERVER = str(Path(__file__).parent.parent / "tests" / "tools" / "server.py")

_CALLS = """
import time
from mcptools.bench import echo
params, taken = echo.Params(text="x"), []
for _ in range({count}):
    began = time.perf_counter()
    echo.run(params)
    taken.append(time.perf_counter() - began)
print(taken)
"""

_IMPORT = """
import time
began = time.perf_counter()
from mcptools.bench import {module}
print(time.perf_counter() - began)
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as directory:
        here = os.getcwd()
        os.chdir(directory)
        try:
            yield from asyncio.run(_rows())
        finally:
            os.chdir(here)


async def _rows() -> list[Row]:
    began = time.perf_counter()
    tools = await generate_mcp_sources("bench", {"command": sys.executable, "args": [SERVER]}, "mcptools")
    generated = time.perf_counter() - began
    parameters = StdioServerParameters(command=sys.executable, args=[SERVER])
    async with CodeExecutor() as executor, Client(parameters) as client:
        imports = [await _import(executor, module) for module in ("picture", "image_search", "environment")]
        await executor.execute(_CALLS.format(count=20))
        await _direct(client, 20)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(20):
            ours += await _through_kernel(executor, 25)
            theirs += await _direct(client, 25)
        began = time.perf_counter()
        await executor.execute(_CALLS.format(count=1000))
        thousand = time.perf_counter() - began
    ours.sort()
    theirs.sort()
    overhead = percentile(ours, 50) - percentile(theirs, 50)
    later = max(imports[1:])
    return [
        Row(
            "a tool called from a cell, accepted by the policy",
            show(ours),
            f"the same server called directly {show(theirs)}",
            f"+ {overhead * 1e3:.2f} ms",
            "+ ≤ 2 ms",
            overhead <= 0.002,
        ),
        Row("1,000 calls in a loop", f"{thousand:.1f} s"),
        Row("import of the first generated module, with pydantic", f"{imports[0] * 1e3:.0f} ms"),
        Row("import of another", f"{later * 1e3:.1f} ms", reach="≤ 50 ms", ok=later <= 0.05),
        Row(f"generating {len(tools)} tools, the server's start included", f"{generated:.1f} s"),
    ]


async def _import(executor: CodeExecutor, module: str) -> float:
    return float((await executor.execute(_IMPORT.format(module=module))).text or "nan")


async def _through_kernel(executor: CodeExecutor, count: int) -> list[float]:
    text = (await executor.execute(_CALLS.format(count=count))).text or ""
    return [float(part) for part in text.strip("[]").split(",")]


async def _direct(client: Client, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await client.call_tool("echo", {"text": "x"})
        taken.append(time.perf_counter() - began)
    return taken
