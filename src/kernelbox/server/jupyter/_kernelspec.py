"""The kernelspec by which plain Jupyter finds our kernels."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from kernelbox.base._errors import InvalidInput, StoreFailed
from kernelbox.server.jupyter._kernel_info import DISPLAY_NAME, LOGO

# The module that our kernelspecs run.
_PROGRAM = "kernelbox.server.jupyter"


def install(name: str, *, prefix: str | None = None, kernel: str | None = None) -> str:
    """Installs the kernelspec for this user, or below a prefix such as an environment's; returns its directory.

    With `kernel` its notebooks share the kernel of that name, which stays; without, each has one that ends with it.
    """
    # Without the current directory on its path: notebooks have neighbours called `random.py`.
    argv = [sys.executable, "-P", "-m", _PROGRAM, "-f", "{connection_file}"]
    spec = {
        "argv": [*argv, *(["--name", kernel] if kernel else [])],
        "display_name": f"{DISPLAY_NAME}: {kernel}" if kernel else DISPLAY_NAME,
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": False},
    }
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "kernel.json").write_text(json.dumps(spec, indent=1), encoding="utf-8")
        Path(directory, "logo-svg.svg").write_text(LOGO, encoding="utf-8")
        try:
            placed: str = KernelSpecManager().install_kernel_spec(directory, name, user=prefix is None, prefix=prefix)
        except ValueError as exc:
            raise InvalidInput("the name of the kernelspec", name, str(exc)) from exc
        except OSError as exc:
            raise StoreFailed.because(exc, prefix or "~", "write the kernelspec to") from exc
    return placed


def remove(name: str, *, prefix: str | None = None, user: bool = False) -> str:
    """Removes our kernelspec of a name: below a prefix, among this user's, or the one that Jupyter finds.

    Returns the directory that it was in.
    """
    manager = KernelSpecManager(ensure_native_kernel=False)
    places = Path(manager.user_kernel_dir if prefix is None else f"{prefix}/share/jupyter/kernels")
    found = str(places / name) if user or prefix is not None else manager.find_kernel_specs().get(name)
    spec = None if found is None else _read_spec(Path(found, "kernel.json"))
    if found is None or spec is None:
        where = f" in {places}" if user or prefix is not None else ""
        raise InvalidInput("the name of the kernelspec", name, f"there is no kernelspec of this name{where}")
    if _PROGRAM not in spec.get("argv", ()):
        advice = f"it was not installed by kernelbox; `jupyter kernelspec remove {name}` removes it"
        raise InvalidInput("the name of the kernelspec", name, advice)
    try:
        os.remove(found) if os.path.islink(found) else shutil.rmtree(found)
    except OSError as exc:
        raise StoreFailed.because(exc, found, "remove the kernelspec from") from exc
    return found


def _read_spec(path: Path) -> dict[str, Any] | None:
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return spec if isinstance(spec, dict) else None
