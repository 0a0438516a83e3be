"""Interpreter: the Python that a kernel and its template run in, as one value."""

from __future__ import annotations

import functools
import os
import sys

from kernelbox.wire._values import dataclass

# These hold the whole system.
_SHARED = ("/", "/usr")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter with its environment.

    `build` is its `sys.version`, `prefixes` are all the directories that its code comes from, and `folders` are where
    packages are installed. `is_own` says that it runs the host too.
    """

    executable: str
    prefix: str
    version: str
    build: str
    prefixes: tuple[str, ...]
    folders: tuple[str, ...]
    is_own: bool = False

    @property
    def program(self) -> str:
        """The file that is executed; the one in a virtual environment is a link to it."""
        return os.path.realpath(self.executable)

    @property
    def is_virtual(self) -> bool:
        return os.path.exists(os.path.join(self.prefix, "pyvenv.cfg"))

    @property
    def is_conda(self) -> bool:
        return os.path.isdir(os.path.join(self.prefix, "conda-meta"))

    @property
    def code(self) -> list[str]:
        """The directories that hold only this interpreter; those of the system hold others' files too."""
        return [path for path in dict.fromkeys(self.prefixes) if path not in _SHARED]


@functools.cache
def own_interpreter() -> Interpreter:
    """Returns the interpreter of this process."""
    import site

    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return Interpreter(
        executable=sys.executable,
        prefix=sys.prefix,
        version=".".join(map(str, sys.version_info[:3])),
        build=sys.version,
        prefixes=(sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix),
        folders=tuple(folders),
        is_own=True,
    )
