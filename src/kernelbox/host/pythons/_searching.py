"""Finds the interpreter that `python=` means: a path, an environment, a version, or that of the project."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import sys

from kernelbox.base._cell_places import can_cells_write
from kernelbox.base._environment import host_variable
from kernelbox.base._errors import InvalidInput, StartFailed
from kernelbox.base._interpreter import own_interpreter
from kernelbox.host.pythons._probing import OLDEST, look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.host.pythons._requirements import Requirements

PROJECT = "project"

# Minor versions of Python 3 are looked for from here down.
_NEWEST = 16

# What makes a directory the root of a project.
_PROJECT_FILES = ("pyproject.toml", "uv.lock")


def find_python(wanted: str, cwd: str) -> str:
    """Returns the path of the requested interpreter; raises InvalidInput if there is none.

    A project is looked for in the directory `cwd` and those above it.
    """
    if wanted == PROJECT:
        return _of_project(cwd)
    if is_version(wanted):
        return _of_version(wanted)
    path = _absolute(wanted)
    if os.path.isdir(path):
        return _in_environment(wanted, path)
    if os.path.exists(path):
        return path
    found = None if os.sep in wanted else shutil.which(wanted, path=search_path())
    if found is None:
        raise InvalidInput(
            "python", wanted, "there is no such file; use a path, an environment's directory, a version, or 'project'"
        )
    return found


def is_meant(wanted: str, cwd: str, executable: str, version: str) -> bool:
    """Tells whether a request means a certain interpreter, even one that was deleted since it started."""
    if is_version(wanted):
        return _has_version(version, wanted)
    try:
        return _is_same(find_python(wanted, cwd), executable)
    except InvalidInput:
        return _absolute(wanted) in (executable, os.path.dirname(os.path.dirname(executable)))


def is_version(wanted: str) -> bool:
    """Tells whether this names a version, such as 3.12 or 3.12.1."""
    parts = wanted.split(".")
    return 2 <= len(parts) <= 3 and all(part.isascii() and part.isdecimal() for part in parts)


def _has_version(version: str, wanted: str) -> bool:
    return f"{version}.".startswith(f"{wanted}.")  # 3.12.1 is a 3.12


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _is_same(one: str, other: str) -> bool:
    """Tells whether two paths are the same program of the same environment: `python` and `python3` often are."""
    return one == other or all(
        os.path.realpath(found) == os.path.realpath(against)
        for found, against in ((one, other), (os.path.dirname(one), os.path.dirname(other)))
    )


def search_path() -> str:
    """Returns PATH without relative directories and those that cells can write."""
    found = (host_variable("PATH") or os.defpath).split(os.pathsep)
    return os.pathsep.join(path for path in found if os.path.isabs(path) and not can_cells_write(path))


def find_uv() -> str | None:
    """Returns the path of uv: from PATH, or beside this interpreter; None if there is none."""
    beside = os.path.dirname(sys.executable)
    return shutil.which("uv", path=search_path()) or (
        None if can_cells_write(beside) else shutil.which("uv", path=beside)
    )


def find_accepted(required: Requirements) -> str:
    """Returns an interpreter that requirements accept, "" for our own; raises InvalidInput if there is none."""
    if required.accepts(own_interpreter().version):
        return ""
    for minor in range(_NEWEST, OLDEST[1] - 1, -1):
        for path in _candidates(f"3.{minor}"):
            with contextlib.suppress(StartFailed):
                version = look_at(path)
                if version >= OLDEST and required.accepts(".".join(map(str, version))):
                    return path
    raise InvalidInput("requires-python", required.python, "no such Python was found; give the path of one as python")


def _in_environment(wanted: str, directory: str) -> str:
    for name in ("python", "python3"):
        path = os.path.join(directory, "bin", name)
        if os.path.exists(path):
            return path
        if os.path.islink(path):
            allowed = f"its interpreter is gone ({path} leads nowhere); make the environment again"
            raise InvalidInput("python", wanted, allowed)
    raise InvalidInput("python", wanted, "the directory has no bin/python, so it is not an environment")


def _of_project(cwd: str) -> str:
    directory = cwd
    while True:
        if any(os.path.exists(os.path.join(directory, name)) for name in _PROJECT_FILES):
            path = os.path.join(directory, host_variable("UV_PROJECT_ENVIRONMENT") or ".venv", "bin", "python")
            if os.path.exists(path):
                return path
            allowed = f"the project {directory} has no environment at {os.path.dirname(os.path.dirname(path))}"
            raise InvalidInput("python", PROJECT, f"{allowed}; run `uv sync` there")
        parent = os.path.dirname(directory)
        if parent == directory:
            raise InvalidInput("python", PROJECT, f"there is no pyproject.toml in {cwd}, nor in any directory above it")
        directory = parent


def _of_version(wanted: str) -> str:
    own = own_interpreter()
    if _has_version(own.version, wanted):
        return own.executable
    for path in _candidates(wanted):
        try:
            version = ".".join(map(str, look_at(path)))
        except StartFailed:
            continue  # a shim of pyenv may be for a version that is not active
        if _has_version(version, wanted):
            return path
    allowed = f"no Python {wanted} was found; run `uv python install {wanted}`, or use the path of one"
    raise InvalidInput("python", wanted, allowed)


def _candidates(wanted: str) -> Iterator[str]:
    """Yields interpreters that may have a version: on PATH, those of pyenv, and the one that uv knows."""
    minor = ".".join(wanted.split(".")[:2])
    for name in (f"python{minor}", "python3", "python"):
        found = shutil.which(name, path=search_path())
        if found is not None:
            yield found
    pyenv = host_variable("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    for directory in sorted(glob.glob(os.path.join(glob.escape(pyenv), "versions", f"{minor}*")), reverse=True):
        yield os.path.join(directory, "bin", "python")
    found = _ask_uv(wanted)
    if found:
        yield found


def _ask_uv(wanted: str) -> str:
    import subprocess

    uv = find_uv()
    if uv is None:
        return ""
    command = [uv, "python", "find", "--no-project", "--no-python-downloads", wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=30.0, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
