"""What the tests of tools share: servers to call, packages generated for them, and cells that call their tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import eventually
from tests.support.executor import run

from kernelbox import CodeExecutionError, CodeExecutor, generate_mcp_sources

HERE = Path(__file__).parents[1] / "tools"

# The server that starts at once; the one made with the SDK takes a second.
COMMAND = (sys.executable, "-S", str(HERE / "plain_server.py"))
PLAIN: dict[str, Any] = {"command": COMMAND[0], "args": list(COMMAND[1:])}
SDK = {"command": sys.executable, "args": [str(HERE / "server.py")]}


def plain(tmp_path: Path, **spec: Any) -> dict[str, Any]:
    """Returns the parameters of a plain server with tools, pages and results of its own."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    return {**PLAIN, "args": [*PLAIN["args"], str(path)]}


def generate(root: Path, params: dict[str, Any], name: str = "plain") -> list[str]:
    """Writes a package, and forgets no server."""
    return run(lambda: generate_mcp_sources(name, params, root / "mcptools"))


@contextlib.asynccontextmanager
async def executing(root: Path, **options: Any) -> AsyncIterator[CodeExecutor]:
    """Gives an executor whose kernel finds the packages below a directory."""
    async with CodeExecutor(working_dir=root, images_dir=root / "images", **options) as executor:
        yield executor


def cell(tool: str, **args: Any) -> str:
    """Returns code that calls a tool of the plain server and shows what it returned."""
    return f"from mcptools.plain import {tool}\nprint({tool}.run({tool}.Params(**{args!r})))"


async def failure(executor: CodeExecutor, code: str) -> str:
    """Runs code that calls a tool in vain; returns what the error says."""
    with pytest.raises(CodeExecutionError) as caught:
        await executor.execute(code)
    assert caught.value.ename == "ToolError", caught.value.text
    return caught.value.evalue


@contextlib.contextmanager
def serving(transport: str, tmp_path: Path, *port: str) -> Iterator[str]:
    """Runs the server made with the SDK, on a port of its own or on one that another has had."""
    told = tmp_path / "port"
    told.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, str(HERE / "server.py"), transport, str(told), *port])
    try:
        eventually(lambda: told.exists() and told.read_text())
        yield told.read_text()
    finally:
        process.kill()
        process.wait()


async def until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds, for what there is no event for; the scenario's deadline ends it."""
    while not condition():  # noqa: ASYNC110  # as it says
        await asyncio.sleep(0.005)
