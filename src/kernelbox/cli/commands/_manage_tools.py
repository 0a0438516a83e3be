"""`tools`: adds, lists, refreshes and removes MCP servers whose tools cells can call."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from argparse import Namespace
from typing import Any

from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._errors import InvalidInput, KernelBoxError
from kernelbox.base._text import escape
from kernelbox.cli.terminal._output import emit, say
from kernelbox.tools._generate import generate_mcp_sources
from kernelbox.tools._naming import module_name
from kernelbox.tools._package import remove_package
from kernelbox.tools._servers import Servers, read_parameters
from kernelbox.tools._toolbox import describe_server


def run(options: Namespace) -> int:
    """Runs the command."""
    actions = {"add": _add, "list": _list, "remove": _remove, "refresh": _refresh}
    emit(actions[options.action](options))
    return 0


def _add(options: Namespace) -> dict[str, Any]:
    name = _need_name(options)
    if bool(options.program) == bool(options.url):
        wrong = "has a command and an address" if options.url else "has no command and no address"
        advice = "give its command after --, or its address with --url; one of them"
        raise InvalidInput.saying(f"server {name!r} {wrong}: {advice}")
    params: dict[str, Any]
    if options.url:
        if options.env or options.server_cwd:
            raise InvalidInput.saying("--env and --server-cwd are for a command; a server at an address takes --header")
        headers = _read_pairs("--header", options.header, "[=:]")
        params = {"url": options.url, "headers": {name: value.strip() for name, value in headers.items()}}
        if options.transport:
            params["type"] = options.transport
    else:
        if options.header or options.transport:
            raise InvalidInput.saying("--header and --transport are for an address; a command takes --env")
        command, *args = options.program
        params = {"command": command, "args": args, "env": _read_pairs("--env", options.env, "=")}
        if options.server_cwd:
            params["cwd"] = os.path.abspath(options.server_cwd)
    return _generate(name, params, options.root, options.connect_timeout)


def _list(options: Namespace) -> dict[str, Any]:
    listed = []
    for name, entry in sorted(Servers(KernelBoxConfig.from_env()).all().items()):
        server = describe_server(read_parameters(name, entry["parameters"]))
        listed.append({"name": name, "server": server, "package": os.path.join(entry["root"], module_name(name))})
    return {"servers": listed}


def _remove(options: Namespace) -> dict[str, Any]:
    name = _need_name(options)
    servers = Servers(KernelBoxConfig.from_env())
    entry = servers.all().get(name)
    if entry is None:
        raise _unknown(name)
    servers.remove(name)
    return {"removed": name, "package_removed": remove_package(entry["root"], module_name(name), name)}


def _refresh(options: Namespace) -> dict[str, Any]:
    servers = Servers(KernelBoxConfig.from_env()).all()
    if options.name is not None and options.name not in servers:
        raise _unknown(options.name)
    refreshed, failed = [], []
    for name, entry in sorted(servers.items()):
        if options.name in (None, name):
            try:
                refreshed.append(_generate(name, entry["parameters"], entry["root"], options.connect_timeout))
            except KernelBoxError as exc:
                failed.append(f"{name}: {exc}")
    if failed:
        for sentence in failed[1:]:
            say(escape(sentence))
        raise KernelBoxError(failed[0])
    return {"refreshed": refreshed}


def _generate(name: str, params: dict[str, Any], root: str, connect_timeout: float | None) -> dict[str, Any]:
    modules = asyncio.run(generate_mcp_sources(name, params, root, connect_timeout=connect_timeout))
    return {"server": name, "package": os.path.join(os.path.abspath(root), module_name(name)), "tools": modules}


def _need_name(options: Namespace) -> str:
    if options.name is None:
        raise InvalidInput.saying(f"the name of the server is missing: `kernelbox tools {options.action} NAME …`")
    return str(options.name)


def _read_pairs(option: str, pairs: list[str], between: str) -> dict[str, str]:
    """Returns what an option says, by name; errors do not show a value, which may be a secret."""
    found = {}
    for pair in pairs:
        name, *value = re.split(between, pair, maxsplit=1)
        if not value or not name:
            advice = "use NAME=VALUE; quote ${VARIABLE} so that your shell leaves it alone"
            raise InvalidInput.saying(f"{option} has no name and value: {advice}")
        found[name] = value[0]
    return found


def _unknown(name: str) -> KernelBoxError:
    return KernelBoxError(f"there is no server {name!r} here; `kernelbox tools list` shows the existing ones")


# Ends colours that a cell has left on, and a line that it has begun.
_CLEAR = "\x1b[0m\n"


def ask_terminal(question: str) -> bool | str:
    """Asks the person at the terminal whether a call may run; without a terminal it may not.

    What a cell has printed can neither hide the question nor take its answer: the question begins a new line, in the
    usual colours, and what was typed before it is dropped.
    """
    import termios

    try:
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            termios.tcflush(terminal, termios.TCIFLUSH)
            rest = f"{_CLEAR}Run {question}? [y/N] ".encode()
            while rest:
                rest = rest[terminal.write(rest) :]
            answer = terminal.readline().decode("utf-8", "replace").strip().lower()
    except (OSError, termios.error):
        return "there is no terminal at which it could be approved; pass --approve all"
    return True if answer in ("y", "yes") else "the person at the terminal said no"


def end_sessions() -> None:
    """Ends the servers that this process has started."""
    toolbox = sys.modules.get("kernelbox.tools._toolbox")
    if toolbox is not None:
        toolbox.close_shared()
