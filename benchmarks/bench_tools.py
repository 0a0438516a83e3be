"""Tools and functions of the host called from cells: what the way through kernel and gate adds, imports, generation."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from benchmarks._measure import Row, percentile, scaled, show
from kernelbox import CodeExecutor, Kernel, generate_mcp_sources

_TESTS = Path(__file__).parent.parent / "tests" / "tools"
SERVER = str(_TESTS / "server.py")

# Starts at once, so that what is measured is what comes after its answer.
_PROMPT_SERVER = str(_TESTS / "plain_server.py")

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

_FUNCTION = """
import time
taken = []
for number in range({count}):
    began = time.perf_counter()
    add(number, 1)
    taken.append(time.perf_counter() - began)
taken
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
            yield from _rows_of_functions()
        finally:
            os.chdir(here)


async def _rows() -> list[Row]:
    await generate_mcp_sources("bench", {"command": sys.executable, "args": [SERVER]}, "mcptools")
    generated = sorted([await _generate_fifteen() for _ in range(scaled(3))])
    parameters = StdioServerParameters(command=sys.executable, args=[SERVER])
    async with CodeExecutor() as executor, Client(parameters) as client:
        imports: dict[str, list[float]] = {"picture": [], "image_search": []}
        for _ in range(scaled(10)):
            await executor.reset()
            for module, taken in imports.items():
                taken.append(await _import(executor, module))
        await executor.execute(_CALLS.format(count=20))
        await _direct(client, 20)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(scaled(20)):
            ours += await _through_kernel(executor, 25)
            theirs += await _direct(client, 25)
        many = scaled(1000)
        began = time.perf_counter()
        await executor.execute(_CALLS.format(count=many))
        thousand = time.perf_counter() - began
        direct = sum(await _direct(client, many))
    ours.sort()
    theirs.sort()
    overhead = percentile(ours, 50) - percentile(theirs, 50)
    first, another = map(sorted, imports.values())
    return [
        Row(
            "a tool called from a cell, accepted by the policy",
            show(ours),
            f"the same server called directly {show(theirs)}",
            f"+ {overhead * 1e3:.2f} ms",
            "+ ≤ 2 ms",
            overhead <= 0.002,
        ),
        Row(f"{many:,} calls in a loop", f"{thousand:.1f} s", f"directly {direct:.1f} s", f"{thousand / direct:.2f} ×"),
        Row(
            "import of the first generated module in a new kernel",
            show(first),
            reach="≤ 50 ms",
            ok=percentile(first, 50) <= 0.05,
        ),
        Row("import of another", show(another)),
        Row(
            "generating 15 tools after the server answered",
            f"{percentile(generated, 50):.1f} s",
            reach="≤ 2 s",
            ok=percentile(generated, 50) <= 2,
        ),
    ]


def _rows_of_functions() -> Iterator[Row]:
    def add(one: int, other: int) -> int:
        return one + other

    with Kernel(tools=[add]) as kernel:
        taken: dict[str, list[float]] = {"call": [], "cell": []}
        for _ in range(scaled(20)):
            taken["call"] += kernel.execute(_FUNCTION.format(count=25)).value
            for _ in range(10):
                began = time.perf_counter()
                kernel.execute("1+1")
                taken["cell"].append(time.perf_counter() - began)
        many = scaled(1000)
        thousand = sum(kernel.execute(_FUNCTION.format(count=many)).value)
    calls, cells = sorted(taken["call"]), sorted(taken["cell"])
    ratio = percentile(calls, 50) / percentile(cells, 50)
    yield Row(
        "a function of the host called from a cell",
        show(calls),
        f"a cell 1+1 {show(cells)}",
        f"{ratio:.2f} ×",
        "≤ 3 ms",
        percentile(calls, 50) <= 0.003,
    )
    yield Row(f"{many:,} such calls in a loop", f"{thousand:.1f} s")


async def _generate_fifteen() -> float:
    spec = await asyncio.to_thread(_write_spec)
    parameters = {"command": sys.executable, "args": ["-S", _PROMPT_SERVER, spec]}
    began = time.perf_counter()
    tools = await generate_mcp_sources("fifteen", parameters, "mcptools")
    assert len(tools) == 15
    return time.perf_counter() - began


def _write_spec() -> str:
    path = Path("fifteen.json").absolute()
    path.write_text(json.dumps({"tools": [_tool(number) for number in range(15)]}))
    return str(path)


def _tool(number: int) -> dict[str, Any]:
    """Returns a tool with as much to describe as those of servers in use."""
    person = {"type": "object", "properties": {"name": {"type": "string"}, "since": {"type": ["string", "null"]}}}
    item = {"type": "object", "properties": {"title": {"type": "string"}, "number": {"type": "integer"}}}
    return {
        "name": f"search-{number}",
        "description": "Searches for issues.\nThe newest come first.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "max-results": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                "state": {"enum": ["open", "closed"], "default": "open"},
                "labels": {"type": "array", "items": {"type": "string"}},
                "author": person,
            },
            "required": ["query"],
        },
        "outputSchema": {"type": "object", "properties": {"items": {"type": "array", "items": item}}},
    }


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
