"""Tools that a model can look for in a cell, so that no schema need be in its prompt: ranked, short, bounded.

A root package calls `install`; a server's package has a `Server`. Both read the `tools.json` files that were written
with the packages, and import no module of a tool.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import pydoc
import re
import sys
from types import ModuleType
from typing import Any

# Characters. A model reads all of it: a page for a list, a line for a tool in it.
_BUDGET = 4_000
_LINE = 160


class Tools(ModuleType):
    """The root package: what there is, and how to find it. The servers' packages are imported when they are used."""

    def __setattr__(self, name: str, value: object) -> None:
        """Keeps the functions where a server has the name of one: `from mcptools.search.tool import run` works."""
        if name not in ("search", "help"):
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        servers = _read_servers(self)
        if not servers:
            return f"<{self.__name__}: no servers; generate_mcp_sources writes their packages here>"
        lines = []
        for name, tools in servers:
            modules = ", ".join(tool["module"] for tool in tools)
            lines.append(_cut(f"{name}: {len(tools)} tools: {modules}", _LINE * 3))
        own = self.__name__
        return _fit([*lines, f'{own}.search("words") finds tools, {own}.help("server.tool") shows how to call one'])

    def __getattr__(self, name: str) -> ModuleType:
        if name.startswith("__") or name not in dict(_read_servers(self)):
            raise AttributeError(f"module {self.__name__!r} has no server {name!r}; print it to see what it has")
        return importlib.import_module(f"{self.__name__}.{name}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dict(_read_servers(self))})

    def search(self, words: str, limit: int = 8) -> Found:
        """Finds tools by words of their names, descriptions and parameters; the best first."""
        asked = _split(words)
        ranked = []
        for server, tools in _read_servers(self):
            for tool in tools:
                score = _score(asked, server, tool)
                if score > 0:
                    ranked.append((-score, f"{server}.{tool['module']}", tool))
        ranked.sort(key=lambda entry: entry[:2])
        return Found([_line(name, tool) for _, name, tool in ranked[:limit]], len(ranked))

    def help(self, name: object = "") -> Found:
        """Shows a server's tools, or how one tool is called: pass "server", "server.tool", or the module."""
        if not name:
            return Found([repr(self)], 1)
        asked = name.__name__ if isinstance(name, ModuleType) else str(name)
        server, _, wanted = asked.removeprefix(f"{self.__name__}.").partition(".")
        for found, tools in _read_servers(self):
            if found == server:
                chosen = [tool for tool in tools if wanted in ("", tool["module"], tool["name"])]
                if wanted and chosen:
                    return Found([_page(self.__name__, server, chosen[0])], 1)
                if not wanted:
                    return Found([_line(f"{server}.{tool['module']}", tool) for tool in tools], len(tools))
        near = self.search(asked.replace(".", " "), 3)
        raise LookupError(f"there is no tool {asked!r} in {self.__name__}; near it:\n{near}")


class Found:
    """Lines to read: what a search found. Shown as they are, in a cell and by `print`."""

    def __init__(self, lines: list[str], count: int) -> None:
        self._lines = lines
        self._count = count

    def __repr__(self) -> str:
        if not self._lines:
            return "nothing was found; print the package to see what there is"
        more = self._count - len(self._lines)
        return _fit([*self._lines, *([f"… and {more} more"] if more > 0 else [])])


class Server:
    """The package of one server: its tools are its attributes, imported when they are used."""

    def __init__(self, package: str, file: str) -> None:
        self._package = package
        self._modules = [tool["module"] for tool in _read_tools(os.path.dirname(file))]

    def load(self, name: str) -> ModuleType:
        """Returns the module of a tool."""
        if name not in self._modules:
            raise AttributeError(f"module {self._package!r} has no tool {name!r}")
        return importlib.import_module(f"{self._package}.{name}")


def install(package: str) -> None:
    """Makes a root package searchable, and makes the built-in help show its pages."""
    sys.modules[package].__class__ = Tools
    if pydoc.TextDoc.document is not _document:
        pydoc.TextDoc.document = _document  # type: ignore[assignment,method-assign]  # pydoc asks no object how it is shown


def _document(self: pydoc.TextDoc, thing: object, name: str | None = None, *args: Any) -> str:
    """Does what pydoc does, but for generated packages: of a module it would show all that pydantic's classes have."""
    page = _page_of(thing)
    return pydoc.Doc.document(self, thing, name, *args) if page is None else f"{page}\n"


def _page_of(thing: object) -> str | None:
    """Returns what help shows of a root, a server, a tool or a class of one; None for everything else."""
    if not isinstance(thing, ModuleType | type):
        return None
    root = _root_of(str(vars(thing).get("__name__" if isinstance(thing, ModuleType) else "__module__")))
    if root is None:
        return None
    with contextlib.suppress(LookupError, OSError):
        if isinstance(thing, ModuleType):
            return repr(root if thing is root else root.help(thing))
        return _fit(inspect.getsource(thing).splitlines())
    return None


def _root_of(module: str) -> Tools | None:
    parts = module.split(".")
    above = (sys.modules.get(".".join(parts[:count])) for count in range(1, len(parts) + 1))
    return next((found for found in above if isinstance(found, Tools)), None)


def _read_servers(module: ModuleType) -> list[tuple[str, list[dict[str, Any]]]]:
    """Returns the servers' packages below a root, and their tools, and the functions of the host."""
    functions = _functions_of_host()
    return ([("host", functions)] if functions else []) + [
        (name, tools)
        for directory in filter(os.path.isdir, module.__path__)
        for name in sorted(os.listdir(directory))
        if name.isidentifier() and (tools := _read_tools(os.path.join(directory, name)))
    ]


def _functions_of_host() -> list[dict[str, Any]]:
    """Returns the application's functions in the form of tools; cells call them by their names alone."""
    from IPython.core.getipython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    described = getattr(getattr(kernel, "functions_of_host", None), "described", {})
    return [
        {
            "module": name,
            "name": name,
            "description": function["doc"],
            "parameters": {each[0]: each[3] for each in function["parameters"]},
            "signature": ", ".join(each[0] for each in function["parameters"]),
            "returns": function["returns"],
        }
        for name, function in described.items()
    ]


def _read_tools(directory: str) -> list[dict[str, Any]]:
    try:
        with open(os.path.join(directory, "tools.json"), encoding="utf-8") as file:
            tools: list[dict[str, Any]] = json.load(file)["tools"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return tools


def _score(asked: list[str], server: str, tool: dict[str, Any]) -> float:
    """Weighs a tool: words in its name count most, then those in its description, then its parameters'."""
    places = (
        (4.0, [*_split(tool["name"]), *_split(server)]),
        (2.0, _split(tool["description"])),
        (1.0, [word for name, text in tool["parameters"].items() for word in _split(f"{name} {text}")]),
    )
    total, matched = 0.0, 0
    for word in asked:
        best = max((weight * _likeness(word, other) for weight, words in places for other in words), default=0.0)
        matched += best > 0
        total += best
    return total * matched / len(asked) if asked else 0.0


def _likeness(word: str, other: str) -> float:
    if word == other:
        return 1.0
    short, long = sorted((word, other), key=len)
    return 0.6 if len(short) >= 3 and long.startswith(short) else 0.0


def _split(text: str) -> list[str]:
    """Returns the words of a text; `searchRepos` and `search_repos` have two."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())


def _line(name: str, tool: dict[str, Any]) -> str:
    first = tool["description"].strip().partition("\n")[0]
    return _cut(f"{name}: {first}" if first else name, _LINE)


def _page(root: str, server: str, tool: dict[str, Any]) -> str:
    returns = f" -> {tool['returns']}" if tool.get("returns") else ""
    if server == "host":
        return "\n".join([f"{tool['name']}({tool['signature']}){returns}", "", tool["description"]])
    lines = [f"from {root}.{server}.{tool['module']} import Params, run", f"run({tool['signature']}){returns}"]
    lines += [*tool.get("parts", ()), ""]
    lines += [tool["description"]] if tool["description"] else []
    lines += [f"  {name}: {text}" for name, text in tool["parameters"].items() if text]
    return "\n".join(lines)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _fit(lines: list[str]) -> str:
    return _cut("\n".join(lines), _BUDGET)
