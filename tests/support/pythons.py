"""Environments of other interpreters, made of the packages that are installed here, without a network."""

from __future__ import annotations

import importlib.metadata
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kernelbox.host.pythons._probing import NEEDED


def make_environment(directory: Path, python: str = sys.executable, packages: Iterable[str] = NEEDED) -> Path:
    """Makes a virtual environment with links to packages of ours, and to what these need; returns its directory."""
    subprocess.run([python, "-I", "-m", "venv", "--without-pip", directory], check=True)
    (folder,) = directory.glob("lib/python*/site-packages")
    for path in _installed(tuple(packages)):
        (folder / path.name).symlink_to(path)
    return directory


def find_pyenv(version: str) -> str | None:
    """Returns an interpreter of pyenv; None if it has none. The tests' home directory is not the user's."""
    root = Path(os.environ.get("PYENV_ROOT") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pyenv")
    return next((str(path) for path in sorted(root.glob(f"versions/{version}*/bin/python"))), None)


@cache
def _installed(packages: tuple[str, ...]) -> list[Path]:
    """Returns what is installed for these packages and all that they need."""
    found: dict[str, set[Path]] = {}
    waiting = list(packages)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for other systems, or versions
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        found[name] = {Path(str(distribution.locate_file(top))) for top in tops}
        needs = [need for need in distribution.requires or () if "extra ==" not in need]
        waiting += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needs]
    return sorted(path for paths in found.values() for path in paths if path.exists())
