"""The lock that every development environment is made from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")


def test_lock_pins_every_dependency_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {normalized(requirement) for requirement in project["dependencies"]}
    for extra in project["optional-dependencies"].values():
        named |= {normalized(requirement) for requirement in extra} - {"kernelbox"}
    pinned = {normalized(line) for line in LOCK.splitlines() if "==" in line}
    assert named - pinned == set(), "run `make lock`"


def test_lock_names_no_host_and_no_path() -> None:
    assert re.findall(r"^.*(?://|@ |file:).*$", LOCK, flags=re.MULTILINE) == []


def normalized(requirement: str) -> str:
    """Returns the distribution's name as PEP 503 spells it."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
