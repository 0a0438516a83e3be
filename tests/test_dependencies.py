"""What the package imports is what it says it needs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_imported_package_is_declared() -> None:
    declared = {normalized(requirement) for requirement in PROJECT["dependencies"]}
    distributions = packages_distributions()
    undeclared = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for name in sorted(imported(path))
        if not declared & {normalized(found) for found in distributions.get(name, [name])}
    ]
    assert undeclared == []


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
