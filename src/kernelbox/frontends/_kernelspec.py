"""The kernelspec by which plain Jupyter finds our kernels."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

from kernelbox.base._errors import InvalidInput, StoreFailed
from kernelbox.frontends._kernel_info import DISPLAY_NAME, LOGO


def install(name: str, *, prefix: str | None = None, kernel: str | None = None) -> str:
    """Installs the kernelspec for this user, or below a prefix such as an environment's; returns its directory.

    With `kernel` its notebooks share the kernel of that name, which stays; without, each has one that ends with it.
    """
    # Without the current directory on its path: notebooks have neighbours called `random.py`.
    argv = [sys.executable, "-P", "-m", "kernelbox.frontends", "-f", "{connection_file}"]
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


def remove(name: str) -> str:
    """Removes a kernelspec; returns the directory that it was in."""
    try:
        removed: str = KernelSpecManager().remove_kernel_spec(name)
    except KeyError as exc:  # what NoSuchKernel is too
        raise InvalidInput("the name of the kernelspec", name, "there is none of this name") from exc
    return removed
