"""Asks an interpreter what it is, and whether kernels can run in it, before anything else runs there.

The probe runs neither `.pth` files nor installed packages. An interpreter that cells may have changed is never run.
"""

from __future__ import annotations

import json
import os

from kernelbox.base._cell_places import can_cells_write, first_planted_link
from kernelbox.base._environment import harmless_environment
from kernelbox.base._errors import StartFailed
from kernelbox.base._interpreter import Interpreter, own_interpreter
from kernelbox.base._text import escape, version_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# What the guest imports beside the standard library, and the oldest versions of it, as pyproject.toml has them.
NEEDED = {"ipython": "9.1", "comm": "0.1.2", "matplotlib-inline": "0.1.5"}

OLDEST = (3, 11)

# An interpreter starts in a tenth of this, even from a cold disk on a loaded machine.
_PATIENCE = 30.0

# Runs in any Python, and in 3.11 or newer to its end. Directories that `.pth` files name are searched, not used.
_PROBE = """\
import sys
sys.path[:] = [path for path in sys.path if path]
import json, os
version = list(sys.version_info[:3])
found = {"version": version, "build": sys.version}
if tuple(version) >= (3, 11):
    import importlib.machinery, importlib.metadata, site
    files = []
    site.addpackage = lambda folder, name, known: files.append(os.path.join(folder, name)) or known
    site.execsitecustomize = site.execusercustomize = lambda: None
    site.main()
    folders = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
    path = list(sys.path)
    for file in files:
        try:
            with open(file, encoding="utf-8-sig", errors="replace") as lines:
                path += [os.path.join(os.path.dirname(file), line.strip()) for line in lines if line.strip()]
        except OSError:
            pass
    versions = {}
    for name in sys.argv[1:]:
        for each in importlib.metadata.distributions(name=name, path=path):
            versions.setdefault(name, each.version)
    found["packages"] = versions
    found["name"] = sys.implementation.name
    found["folders"] = [os.path.abspath(folder) for folder in folders]
    found["prefixes"] = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
print(json.dumps(found))
"""

# What is known of an interpreter, and what it looked like on the disk then.
_known: dict[str, tuple[list[object], Interpreter, dict[str, str]]] = {}


def probe(executable: str, *, bare: bool = False) -> Interpreter:
    """Returns the interpreter of a path; raises StartFailed if kernels cannot run in it.

    A `bare` one need not have the packages: an environment is made of it.
    """
    own = own_interpreter()
    if executable == own.executable:
        return own
    _require_out_of_reach(executable, [executable, os.path.dirname(os.path.dirname(executable))])
    seen, interpreter, packages = _known.get(executable, ([], None, {}))
    if interpreter is None or seen != _stamps(interpreter):
        found = _ask(executable)
        _require_usable(executable, found)
        interpreter, packages = _read(executable, found), dict(found["packages"])
    _require_out_of_reach(executable, [*interpreter.code, *interpreter.folders])
    _known[executable] = _stamps(interpreter), interpreter, packages
    if not bare:
        _require_packages(interpreter, packages)
    return interpreter


def look_at(executable: str) -> tuple[int, ...]:
    """Returns the version of an interpreter; raises StartFailed if it is not one, or cells may have changed it."""
    _require_out_of_reach(executable, [executable, os.path.dirname(os.path.dirname(executable))])
    return tuple(_ask(executable)["version"])


def _require_out_of_reach(executable: str, paths: Iterable[str]) -> None:
    for path in paths:
        planted = first_planted_link(path)
        if planted is not None or can_cells_write(path):
            raise StartFailed(
                f"{executable!r} is not used, because sandboxed cells can write to {planted or path!r} and may have "
                "changed it: use an interpreter in a directory that no sandboxed kernel can write to"
            )


def _ask(executable: str) -> dict[str, Any]:
    import subprocess

    if not os.path.exists(executable):
        raise StartFailed(f"there is no Python at {executable!r} any more: make it again, or choose another one")
    try:
        done = subprocess.run(
            [executable, "-E", "-S", "-c", _PROBE, *NEEDED],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=harmless_environment(),
            cwd="/",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise StartFailed(f"{executable!r} cannot be run as Python: {_reason(exc)}") from exc
    try:
        found = json.loads(done.stdout)
        assert isinstance(found["version"], list)
    except (ValueError, KeyError, TypeError, AssertionError) as exc:
        said = escape(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])[:200]
        why = f"; it said: {said}" if said else ""
        raise StartFailed(f"{executable!r} is not a working Python{why}") from exc
    return dict(found)


def _reason(exc: BaseException) -> str:
    return getattr(exc, "strerror", None) or str(exc)[:200]


def _require_usable(executable: str, found: dict[str, Any]) -> None:
    version = ".".join(map(str, found["version"]))
    if tuple(found["version"]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise StartFailed(f"{executable!r} is Python {version}, and kernels need {oldest} or newer")
    if found["name"] != "cpython":
        raise StartFailed(f"{executable!r} is {found['name']}, and kernels need CPython")


def _require_packages(interpreter: Interpreter, packages: dict[str, str]) -> None:
    lacking = [
        name for name, oldest in NEEDED.items() if version_numbers(packages.get(name, "")) < version_numbers(oldest)
    ]
    if lacking:
        wanted = " ".join(f"'{name}>={NEEDED[name]}'" if name in packages else name for name in NEEDED)
        advice = f"uv pip install --python {interpreter.executable} {wanted}"
        if _is_managed(interpreter):
            advice = "its system does not let others install there, so add requirements=[], which makes an environment"
        missing = " and ".join(f"{name}>={NEEDED[name]}" for name in lacking)
        raise StartFailed(f"the environment of {interpreter.executable!r} lacks {missing}: {advice}")


def _is_managed(interpreter: Interpreter) -> bool:
    """Tells whether only the system's packages may be installed for an interpreter (PEP 668)."""
    library = f"python{interpreter.version.rpartition('.')[0]}"
    marker = os.path.join(interpreter.prefix, "lib", library, "EXTERNALLY-MANAGED")
    return not interpreter.is_virtual and os.path.exists(marker)


def _read(executable: str, found: dict[str, Any]) -> Interpreter:
    return Interpreter(
        executable=executable,
        prefix=found["prefixes"][0],
        version=".".join(map(str, found["version"])),
        build=found["build"],
        prefixes=tuple(found["prefixes"]),
        folders=tuple(found["folders"]),
    )


def _stamps(interpreter: Interpreter) -> list[object]:
    """Returns values that change if an environment is made again, or packages in it are installed or removed."""
    files = (interpreter.executable, os.path.join(interpreter.prefix, "pyvenv.cfg"), *interpreter.folders)
    return [_stamp(path) for path in files]


def _stamp(path: str) -> list[int]:
    try:
        info = os.stat(path)
    except OSError:
        return []
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns]
