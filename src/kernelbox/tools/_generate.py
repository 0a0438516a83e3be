"""`generate_mcp_sources`: asks a server for its tools and writes a package with a module for each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._errors import InvalidInput
from kernelbox.core._arguments import check_seconds
from kernelbox.tools._modules import build_files
from kernelbox.tools._naming import check_server_name, module_name, module_names
from kernelbox.tools._package import check_owner, check_root, write_package
from kernelbox.tools._servers import ServerParameters, Servers, read_parameters
from kernelbox.tools._session import Session, submit
from kernelbox.tools._toolbox import CONNECT_TIMEOUT


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
    filled in from the environment of the process that connects. An existing package is replaced when the new one is
    complete.
    """
    server, config = check_server_name(server_name), KernelBoxConfig.from_env()
    parameters, root = read_parameters(server, server_params), check_root(root_dir)
    connect_timeout = check_seconds("connect_timeout", connect_timeout)
    package = module_name(server)
    await asyncio.to_thread(check_owner, root, package, server)
    work = submit(_build(server, parameters, connect_timeout))
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
    session = Session(server, parameters, connect_timeout=connect_timeout)
    try:
        tools = await session.list_tools()
        instructions = (await session.open()).instructions
    finally:
        await session.close()
    listed = [tool.model_dump(by_alias=True, mode="json", exclude_unset=True) for tool in tools]
    listed = list({tool["name"]: tool for tool in listed}.values())
    if not listed:
        raise InvalidInput("server", server, "it has no tools")
    modules = module_names([tool["name"] for tool in listed])
    # In a thread: a list of thousands would hold up the sessions.
    files = await asyncio.to_thread(build_files, server, instructions, listed, modules)
    return files, [modules[tool["name"]] for tool in listed]
