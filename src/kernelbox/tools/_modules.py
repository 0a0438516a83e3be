"""The text of a generated package: for each tool a module with its parameters, its result and a function to call it."""

from __future__ import annotations

import json
import re
import textwrap

from kernelbox.tools._classes import ModelClass, make_params, make_result
from kernelbox.tools._naming import ClassNames
from kernelbox.tools._schemas import clean_text, make_safe
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kernelbox.tools._classes import ModelField

_WIDTH = 118

# For a tool without a schema: the caller may pass any arguments.
_OPEN_PARAMS = ModelClass("Params", "The server checks the arguments.", (), None, "allow")

# Names in both packages begin with an underscore, so no tool or server can have them.
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
class ToolModule:
    """A tool, the name of its module, and its classes; `result` is empty if the server does not describe one."""

    name: str
    module: str
    description: str
    params: tuple[ModelClass, ...]
    result: tuple[ModelClass, ...]


def build_files(
    server: str, instructions: object, listed: Iterable[Mapping[str, Any]], modules: Mapping[str, str]
) -> dict[str, str]:
    """Returns the files of a server's package by name. `listed` are its tools, `modules` the names of their modules."""
    tools = [_read_tool(entry, modules[entry["name"]]) for entry in listed]
    files = {f"{tool.module}.py": _write_module(server, tool) for tool in tools}
    files["__init__.py"] = _write_init(server, clean_text(instructions), tools)
    files["tools.json"] = json.dumps({"server": server, "tools": [_describe(tool) for tool in tools]}, indent=1)
    return files


def _read_tool(entry: Mapping[str, Any], module: str) -> ToolModule:
    takes = make_safe(entry.get("inputSchema"))
    returns = make_safe(entry.get("outputSchema"), lenient=True)
    names = ClassNames("Params", *(["Result"] if returns else []))
    try:
        params = tuple(make_params(takes, names)) if takes else (_OPEN_PARAMS,)
        result = tuple(make_result(returns, names)) if returns else ()
    except RecursionError:  # no honest schema is nested so deeply
        params, result = (_OPEN_PARAMS,), ()
    return ToolModule(entry["name"], module, clean_text(entry.get("description")), params, result)


def _write_module(server: str, tool: ToolModule) -> str:
    classes = "\n\n\n".join(map(_write_class, (*tool.params, *tool.result)))
    returns, kind = ("Result", ", Result") if tool.result else ("Any", "")
    names = f"{_quote(server)}, {_quote(tool.name)}, params{kind}"
    description = tool.description or clean_text(f"The tool {tool.name}.")
    typing = [name for name in ("Any", "Literal") if name == returns or _uses(classes, name)]
    pydantic = [name for name in ("BaseModel", "ConfigDict", "Field", "RootModel") if _uses(classes, name)]
    head = [
        *_docstring(_first_line(description), ""),
        "",
        "from __future__ import annotations",
        "",
        *([f"from typing import {', '.join(typing)}", ""] if typing else []),
        f"from pydantic import {', '.join(pydantic)}",
        "",
        "from kernelbox.guest.tools import call, call_async",
    ]
    run = [f"def run(params: Params) -> {returns}:", *_docstring(description, "    "), f"    return call({names})"]
    run_async = [
        f"async def run_async(params: Params) -> {returns}:",
        '    """Does the same, and lets other tasks run meanwhile."""',
        f"    return await call_async({names})",
    ]
    return "\n\n\n".join(["\n".join(head), classes, "\n".join(run), "\n".join(run_async)]) + "\n"


def _write_init(server: str, description: str, tools: list[ToolModule]) -> str:
    listed = "\n".join(f"{tool.module}: {_first_line(tool.description)}".rstrip(": ") for tool in tools)
    text = f"{_first_line(description) or f'Tools of the server {server}.'}\n\n{listed}"
    return _PACKAGE.format(docstring="\n".join(_docstring(text, "")), modules=[tool.module for tool in tools])


def _describe(tool: ToolModule) -> dict[str, Any]:
    """Returns a tool's entry in the index of its package."""
    params = tool.params[-1]
    return {
        "name": tool.name,
        "module": tool.module,
        "description": tool.description,
        "signature": _signature(params),
        "returns": _signature(tool.result[-1]) if tool.result else "",
        "parts": [_signature(made) for made in (*tool.params[:-1], *tool.result[:-1])],
        "parameters": {field.name: field.description for field in params.fields},
    }


def _signature(made: ModelClass) -> str:
    """Returns how a class is called, on one line; `**others` if `Params` takes further arguments."""
    if made.root is not None:
        return f"{made.name}({made.root})"
    shown = [_write_name(field) + ("" if field.default is None else f" = {field.default}") for field in made.fields]
    if made.extra == "allow" and made.name == "Params":
        shown.append("**others")
    return f"{made.name}({', '.join(shown)})"


def _write_class(made: ModelClass) -> str:
    if made.root is not None:
        lines = [f"class {made.name}(RootModel[Any]):", *_docstring(made.description, "    "), f"    root: {made.root}"]
        return "\n".join(lines)
    lines = [f"class {made.name}(BaseModel):", *_docstring(made.description, "    ")]
    config = [f'extra="{made.extra}"'] if made.extra else []
    if any(field.alias for field in made.fields):
        config.append("populate_by_name=True")
    if any(field.name.startswith("model_") for field in made.fields):
        config.append("protected_namespaces=()")  # or pydantic warns about names that look like its own
    if any(name == "pattern" for field in made.fields for name, _ in field.constraints):
        config.append('regex_engine="python-re"')
    if config:
        lines.append(f"    model_config = ConfigDict({', '.join(config)})")
    for field in made.fields:
        lines += [f"    {_write_field(field)}", *_docstring(field.description, "    ")]
    return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])


def _write_field(field: ModelField) -> str:
    said = [f"{name}={value}" for name, value in field.constraints]
    if field.alias:
        said += [f"validation_alias={field.alias}", f"serialization_alias={field.alias}"]
    if said:
        default = [] if field.default is None else [f"default={field.default}"]
        return f"{_write_name(field)} = Field({', '.join([*default, *said])})"
    return _write_name(field) if field.default is None else f"{_write_name(field)} = {field.default}"


def _write_name(field: ModelField) -> str:
    return f"{field.name}: {field.annotation}"


def _docstring(text: str, indent: str) -> list[str]:
    """Returns the lines of a docstring for untrusted text, none for an empty one."""
    text = text.strip()
    if not text:
        return []
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines: list[str] = []
    for line in escaped.splitlines():
        lines += textwrap.wrap(line.strip(), _WIDTH - len(indent) - 6, break_long_words=False) or [""]
    first, *rest = lines
    if not rest:
        return [f'{indent}"""{first}{" " if first.endswith(chr(34)) else ""}"""']
    return [f'{indent}"""{first}', *(f"{indent}{line}".rstrip() for line in rest), f'{indent}"""']


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0].strip()[:300] if lines else ""


def _quote(text: str) -> str:
    """Returns a string literal, in double quotes where possible, as formatters write it."""
    quoted = repr(text)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in quoted else quoted
