"""What the package imports is what it says it needs, and the default install needs no more than it uses."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path

from kernelbox.base._extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "kernelbox"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# The files that import packages of an extra, in functions or as modules that are loaded when the extra is used.
FILES_OF_EXTRAS = {
    "mcp": ("mcp/*", "tools/*"),
    "jupyter": (
        *("gateway/_gateway_link.py", "host/engines/_kernelspecs.py", "host/engines/jupyter/*"),
        *("server/jupyter/_kernelspec.py", "server/jupyter/_zeromq.py"),
    ),
    "otel": ("server/http/_tracing.py",),
}

# Imported for values of these libraries only, which their users have.
OF_USERS = {"numpy", "polars", "pyarrow"}

# Imported by `integrations/` alone, for the users of these frameworks.
FRAMEWORKS = {"agents", "deepagents", "dspy", "fastmcp", "google", "langchain_core", "pydantic_ai", "smolagents"}

# Needed and not imported: uvicorn loads these two, and kernels what draws figures and runs other kernels.
NOT_IMPORTED = {"httptools", "uvloop", "matplotlib-inline", "ipykernel"}


def test_every_imported_package_is_declared() -> None:
    distributions = packages_distributions()
    undeclared = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in sorted(imported(path) - (FRAMEWORKS if path.parent.name == "integrations" else set()))
        if not declared_for(path) & {normalized(found) for found in distributions.get(name, [name])}
    ]
    assert undeclared == []


def test_every_package_of_the_default_install_is_used() -> None:
    distributions = packages_distributions()
    used = {
        normalized(found)
        for path in PACKAGE.rglob("*.py")
        for name in imported(path)
        for found in distributions.get(name, [name])
    }
    assert declared("dependencies") - used - NOT_IMPORTED == set()


def test_every_extra_is_known_and_is_in_all() -> None:
    optional = PROJECT["optional-dependencies"]
    assert set(EXTRAS) | {"all", "dev"} == set(optional)
    assert optional["all"] == [f"kernelbox[{','.join(EXTRAS)}]"]
    assert "kernelbox[all]" in optional["dev"]


def declared_for(path: Path) -> set[str]:
    """Returns what a file may import: what the default install has, and its extra."""
    file = str(path.relative_to(PACKAGE))
    extras = [extra for extra, patterns in FILES_OF_EXTRAS.items() if any(fnmatch(file, each) for each in patterns)]
    return declared("dependencies").union(OF_USERS, *map(declared, extras))


def declared(extra: str) -> set[str]:
    """Returns the distributions that an extra names, or those of the default install."""
    return {normalized(each) for each in PROJECT.get(extra) or PROJECT["optional-dependencies"][extra]}


def imported(path: Path) -> set[str]:
    """Returns the packages of others that a module imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), level=0):
                names.add(module)
    found = {name.partition(".")[0] for name in names}
    return found - sys.stdlib_module_names - {"kernelbox"}


def normalized(requirement: str) -> str:
    """Returns the distribution's name as PEP 503 spells it."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
