"""`generate_mcp_sources`: asks a server for its tools and writes a package with a module for each."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._errors import InvalidInput, KernelBoxError
from kernelbox.core._arguments import check_seconds
from kernelbox.tools import _loop
from kernelbox.tools._naming import check_server_name, module_name, module_names
from kernelbox.tools._package import check_owner, check_root, write_package
from kernelbox.tools._parameters import read_parameters
from kernelbox.tools._servers import Servers
from kernelbox.tools._session import Session
from kernelbox.tools._toolbox import CONNECT_TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kernelbox.tools._parameters import ServerParameters

# Seconds for all tools, and for each: generating takes some 5 to 30 ms a tool, and beyond this a schema has found a way
# to stop the generator.
_PATIENCE = 120.0
_PATIENCE_FOR_TOOL = 0.1


async def generate_mcp_sources(
    server_name: str,
    server_params: Mapping[str, object],
    root_dir: str | os.PathLike[str],
    *,
    connect_timeout: float | None = CONNECT_TIMEOUT,
) -> list[str]:
    """Writes a package with a module for each tool of an MCP server; returns the modules' names.

    `server_params` are {"command", "args", "env", "cwd"} or {"url", "headers", "type"}. They are kept on this side, for
    the kernels of this home: a package names its server and no more. `${NAME}` in them stays as it is there, and is
    filled in from the environment of the process that connects. A package that is there already is replaced when the
    new one is known to work.
    """
    server, config = check_server_name(server_name), KernelBoxConfig.from_env()
    parameters, root = read_parameters(server, server_params), check_root(root_dir)
    connect_timeout = check_seconds("connect_timeout", connect_timeout)
    package = module_name(server)
    await asyncio.to_thread(check_owner, root, package, server)
    work = _loop.submit(_build(server, parameters, connect_timeout))
    files, modules = await asyncio.wrap_future(work)
    await asyncio.to_thread(_save, config, server, parameters, root, package, files)
    return modules


def _save(
    config: KernelBoxConfig, server: str, parameters: ServerParameters, root: str, package: str, files: dict[str, str]
) -> None:
    check_owner(root, package, server)
    write_package(root, package, files)
    Servers(config).put(server, parameters, root)


async def _build(
    server: str, parameters: ServerParameters, connect_timeout: float | None
) -> tuple[dict[str, str], list[str]]:
    """Returns the files of a server's package and the names of its modules."""
    worker = await _start_worker()
    session = Session(server, parameters, connect_timeout=connect_timeout)
    try:
        tools = await session.list_tools()
        instructions = (await session.open()).instructions or ""
        listed = [tool.model_dump(by_alias=True, mode="json", exclude_unset=True) for tool in tools]
        listed = list({tool["name"]: tool for tool in listed}.values())
        if not listed:
            raise InvalidInput("server", server, "it has no tools")
        modules = module_names([tool["name"] for tool in listed])
        request = {"server": server, "instructions": instructions, "tools": listed, "modules": modules}
        files = await _ask(worker, server, request)
    finally:
        await asyncio.gather(session.close(), _end(worker), return_exceptions=True)
    return files, [modules[tool["name"]] for tool in listed]


async def _start_worker() -> asyncio.subprocess.Process:
    """Starts the process that generates; it imports what it needs while the server is asked."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the working directory is not ours to import from
        "-m",
        "kernelbox.tools._worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _ask(worker: asyncio.subprocess.Process, server: str, request: dict[str, Any]) -> dict[str, str]:
    patience = _PATIENCE + _PATIENCE_FOR_TOOL * len(request["tools"])
    try:
        async with asyncio.timeout(patience):
            answer, said = await worker.communicate(json.dumps(request).encode())
    except TimeoutError:
        raise KernelBoxError(f"the schemas of server {server!r} took more than {patience:g} s to read") from None
    if worker.returncode != 0:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise KernelBoxError(f"the tools of server {server!r} could not be generated: {last:.500}")
    files: dict[str, str] = json.loads(answer)["files"]
    return files


async def _end(worker: asyncio.subprocess.Process) -> None:
    if worker.returncode is None:
        worker.kill()
    await worker.wait()
    worker._transport.close()  # type: ignore[attr-defined]  # or its pipes would be closed by the garbage collector
