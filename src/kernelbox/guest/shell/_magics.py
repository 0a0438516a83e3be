"""What notebooks expect of a kernel beside running code: magics of a front end, pagers, installers."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import shutil
import subprocess
import sys
import sysconfig
from types import ModuleType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class
from IPython.core.magics.execution import ExecutionMagics
from IPython.core.magics.packaging import PackagingMagics
from IPython.core.oinspect import Inspector
from IPython.core.page import page
from IPython.utils.openpy import read_py_file

from kernelbox.guest._stdlib import os
from kernelbox.guest.shell._keyboard import keyboard
from kernelbox.wire._builtins import keep_builtins

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

keep_builtins(globals())

# Matplotlib's ways to draw that need a screen, or a front end that runs JavaScript.
SCREENS = frozenset(
    {
        *("gtk", "gtk3", "gtk3agg", "gtk3cairo", "gtk4", "gtk4agg", "gtk4cairo", "macosx", "osx"),
        *("ipympl", "nbagg", "notebook", "webagg", "widget"),
        *("qt", "qt4", "qt5", "qt5agg", "qt6", "qtagg", "tk", "tkagg", "tkcairo", "wx", "wxagg", "wxcairo"),
    }
)


@magics_class
class FrontEndMagics(Magics):
    """Magics that ipykernel answers for its front end. Here they say that there is none, and no cell fails."""

    @line_cell_magic
    def debug(self, line: str, cell: str | None = None) -> None:
        """Looks at the error of the last cell, if a person is at the keyboard."""
        keyboard.require()
        assert self.shell is not None
        ExecutionMagics(self.shell).debug(line, cell)

    @line_magic
    def autosave(self, line: str) -> None:
        """Says that there is no notebook to save."""
        print("%autosave: there is no notebook here that could be saved", file=sys.stderr)

    @line_magic
    def connect_info(self, line: str) -> None:
        """Says how to connect to the kernel."""
        print("%connect_info: connect with kernelbox, by the kernel's name", file=sys.stderr)

    @line_magic
    def qtconsole(self, line: str) -> None:
        """Says what to use instead."""
        print("%qtconsole: a kernel has no screen; use kernelbox console in a terminal", file=sys.stderr)

    @line_magic
    def subshell(self, line: str) -> None:
        """Says that there are none."""
        print("%subshell: cells run one at a time, and there are no subshells", file=sys.stderr)


@magics_class
class PagerMagics(Magics):
    """`%less` and `%more`. They print, as in ipykernel, because there is no terminal to turn pages in."""

    @line_magic
    def less(self, line: str) -> None:
        """Shows a file."""
        if not line:
            raise UsageError("Missing filename.")
        if line.endswith(".py"):
            page(read_py_file(line, skip_encoding_cookie=False))
        else:
            with open(line) as file:
                page(file.read())

    more: Any = line_magic("more")(less)  # type: ignore[arg-type]  # IPython annotates it for bare use only


@magics_class
class Installers(PackagingMagics):
    """`%pip` and its relatives; one that fails is an error of the cell."""

    @line_magic
    def pip(self, line: str) -> None:  # type: ignore[override]  # IPython's decorator is annotated for bare use only
        """Runs pip in the kernel's environment, or uv where there is no pip."""
        if _is_importable("pip"):
            self._install(f"{shlex.quote(sys.executable)} -m pip {line}")
            return
        uv = _find_uv()
        if uv is None:
            command = f"{shlex.quote(sys.executable)} -m ensurepip"
            is_writable = os.access(sysconfig.get_path("purelib"), os.W_OK)  # not in a sandbox
            advice = f"run !{command}" if is_writable else f"run `{command}` outside of the kernel"
            raise UsageError(f"%pip: this environment has neither pip nor uv; {advice}")
        action, _, rest = line.strip().partition(" ")
        python = f"--python {shlex.quote(sys.executable)}" if action.isalpha() else ""
        where = os.environ.get("PIP_TARGET", "") if action == "install" else ""  # pip reads it, uv does not
        target = f"--target {shlex.quote(where)}" if where else ""
        self._install(" ".join(filter(None, (uv, "pip", action, python, target, rest))))

    @line_magic
    def uv(self, line: str) -> None:  # type: ignore[override]  # as above
        """Runs uv."""
        uv = _find_uv()
        if uv is None:
            raise UsageError("%uv: uv is not installed here; run %pip install uv")
        self._install(f"{uv} {line}")

    # Once more, because IPython registers what a class itself defines.
    conda: Any = line_magic("conda")(PackagingMagics.conda)  # type: ignore[arg-type]  # as above
    mamba: Any = line_magic("mamba")(PackagingMagics.mamba)  # type: ignore[arg-type]
    micromamba: Any = line_magic("micromamba")(PackagingMagics.micromamba)  # type: ignore[arg-type]

    def _run_command(self, cmd: str, line: str) -> None:
        assert self.shell is not None
        self.shell.user_ns["_exit_code"] = 0
        super()._run_command(cmd, line)
        self._check(cmd)

    def _install(self, command: str) -> None:
        assert self.shell is not None
        self.shell.system(command)
        self._check(command)
        importlib.invalidate_caches()  # or a module that a cell has just looked for stays unknown

    def _check(self, command: str) -> None:
        assert self.shell is not None
        if status := self.shell.user_ns.get("_exit_code", 0):
            raise subprocess.CalledProcessError(status, command)


class FileInspector(Inspector):
    """Shows the file of an object only if it exists: a cell has no file."""

    def info(self, *args: Any, **kwargs: Any) -> Any:
        told = super().info(*args, **kwargs)
        if told["file"] and not os.path.exists(os.path.expanduser(told["file"])):
            told["file"] = None
        return told


class IpykernelFinder:
    """Gives the real ipykernel, when a cell imports it, our `zmqshell` as an attribute.

    The module is in `sys.modules` already, and Python sets the attribute only when it imports a submodule itself.
    """

    def __init__(self, zmqshell: ModuleType) -> None:
        self._zmqshell = zmqshell

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "ipykernel":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                module.zmqshell = self._zmqshell  # type: ignore[attr-defined]  # what `import a.b` does

            loader.exec_module = exec_module
        return spec


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a cell has put something else in its place
        return False


def _find_uv() -> str | None:
    """Returns how to call uv, quoted for a shell: the one beside the interpreter, or the first on the PATH."""
    if _is_importable("uv"):
        return f"{shlex.quote(sys.executable)} -m uv"
    beside = os.path.dirname(sys.executable)
    found = shutil.which("uv", path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))
    return None if found is None else shlex.quote(found)
