"""The text of a generated module: one tool, its parameters, its result, and a function to call it."""

from __future__ import annotations

import ast

from kernelbox.tools._classes import PYDANTIC_NAMES, TYPING_NAMES, Class, docstring, names_used, rename, write_class
from kernelbox.tools._schemas import clean_text
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Any server may have a tool whose schema is beyond us: its arguments then are what the caller passes.
OPEN_PARAMS = Class("Params", "The server checks the arguments.", (), None, "allow")

# Neither package has names of its own that a tool or a server could have.
_PACKAGE = """\
{docstring}

from kernelbox.guest.discovery import Server

__all__ = {modules!r}


def __getattr__(name: str) -> object:
    return _server.load(name)


_server = Server(__name__, __file__)
"""

ROOT = '''\
"""Tools of MCP servers.

Printing this package lists the servers; `search("words")` finds tools, `help("server.tool")` shows how one is called.
"""

from kernelbox.guest.discovery import install as _install

_install(__name__)
'''


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as a server lists it. The schemas have been made safe."""

    name: str
    module: str
    description: str
    input_schema: dict[str, object]
    output_schema: dict[str, object] | None


def write_module(server: str, tool: Tool, params: list[Class], result: list[Class]) -> str:
    """Returns the text of a tool's module."""
    classes = [*params, *result]
    used = names_used(classes)
    typing = used & TYPING_NAMES | (set() if result else {"Any"})
    returns, kind = ("Result", ", Result") if result else ("Any", "")
    names = f"{_quote(server)}, {_quote(tool.name)}, params{kind}"
    description = tool.description or clean_text(f"The tool {tool.name}.")
    says = docstring(description, "    ")
    head = [
        *docstring(_first_line(description), ""),
        "",
        "from __future__ import annotations",
        "",
        f"from typing import {', '.join(sorted(typing))}\n" if typing else None,
        f"from pydantic import {', '.join(sorted(used & PYDANTIC_NAMES))}\n",
        "from kernelbox.guest.tools import call, call_async",
    ]
    run = [f"def run(params: Params) -> {returns}:", *says, f"    return call({names})"]
    run_async = [
        f"async def run_async(params: Params) -> {returns}:",
        '    """Does the same, and lets other tasks run meanwhile."""',
        f"    return await call_async({names})",
    ]
    parts = [
        "\n".join(line for line in head if line is not None),
        *map(write_class, classes),
        "\n".join(run),
        "\n".join(run_async),
    ]
    return "\n\n\n".join(parts) + "\n"


def write_package(server: str, description: str, tools: Iterable[Tool]) -> str:
    """Returns the text of the package of a server."""
    tools = list(tools)
    listed = "\n".join(f"{tool.module}: {_first_line(tool.description)}".rstrip(": ") for tool in tools)
    says = docstring(f"{_first_line(description) or f'Tools of the server {server}.'}\n\n{listed}", "")
    return _PACKAGE.format(docstring="\n".join(says), modules=[tool.module for tool in tools])


def signature(made: Class) -> str:
    """Returns how a class is called, on one line: names, types, defaults, and of parameters whether others may be."""
    if made.root is not None:
        return f"{made.name}({ast.unparse(made.root)})"
    shown = []
    for field in made.fields:
        default = "" if field.default is None else f" = {field.default}"
        shown.append(f"{field.name}: {ast.unparse(field.annotation)}{default}")
    if made.extra == "allow" and made.name == "Params":
        shown.append("**others")
    return f"{made.name}({', '.join(shown)})"


def apart(params: list[Class], result: list[Class]) -> list[Class]:
    """Returns the classes of a result with names that those of the parameters do not have."""
    taken = {made.name for made in params} | {made.name for made in result}
    names = {}
    for made in result:
        if made.name in {other.name for other in params}:
            name = f"Result{made.name}"
            while name in taken:
                name += "_"
            taken.add(name)
            names[made.name] = name
    return rename(result, names)


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0].strip()[:300] if lines else ""


def _quote(text: str) -> str:
    """Returns the text of a string, in double quotes where that is possible, as formatters do."""
    quoted = repr(text)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in quoted else quoted
