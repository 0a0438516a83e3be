"""The environment and the directory that commands run in: what the kernel was given, and what cells have changed.

The changes decide what a command does as much as its text: `PATH`, `BASH_ENV`, exported functions, `LD_PRELOAD`. So
they are shown in the approval request.
"""

from __future__ import annotations

import errno
import os as user_os
from collections.abc import Iterable
from dataclasses import dataclass

from kernelbox.guest._exact_values import plain_bytes, to_text
from kernelbox.guest._stdlib import os
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# The object that a cell knows as os.environ; taken here because a cell can put another in its place.
_environ = user_os.environ

_SHELLS = (b"bash", b"zsh", b"sh", b"dash", b"ksh")

_given_environment: dict[bytes, bytes] = {}
_given_directory = b""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment as it was at one moment, in values that nothing can change."""

    pairs: tuple[tuple[bytes, bytes], ...]

    def get(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.pairs if key == name), None)

    @property
    def shell(self) -> bytes:
        """What runs `!commands`."""
        return _usable_shell(self.get(b"SHELL"))

    @property
    def changes(self) -> dict[str, str | None]:
        """What differs from what the kernel was given: the new value of each name, None if it was removed."""
        now = dict(self.pairs)
        changed = {name: value for name, value in now.items() if _given_environment.get(name) != value}
        removed = dict.fromkeys(_given_environment.keys() - now.keys())
        return {
            to_text(name): value if value is None else to_text(value) for name, value in {**changed, **removed}.items()
        }


def keep_given_environment() -> None:
    """Remembers the environment as the one that the kernel was given; called before any user code."""
    global _given_environment
    _given_environment = dict(take_environment().pairs)


def given_shell() -> bytes:
    """Returns the shell for approved `!commands`, even if a cell has changed SHELL."""
    return _usable_shell(_given_environment.get(b"SHELL"))


def take_environment() -> Environment:
    """Returns the environment as it is now; raises TypeError or ValueError if a cell has made it unusable."""
    taken = []
    for given, content in tuple(dict.items(_environ._data)):  # type: ignore[attr-defined]  # what it keeps, in bytes
        taken.append((plain_bytes(given, "a name in os.environ"), plain_bytes(content, "a value in os.environ")))
    return make_environment(taken)


def make_environment(pairs: Iterable[tuple[bytes, bytes]]) -> Environment:
    """Returns an environment of names and values; raises ValueError if no program can be given it."""
    taken: dict[bytes, bytes] = {}
    for name, value in pairs:
        if not name or b"=" in name or b"\0" in name + value:
            raise ValueError(f"os.environ has an entry that no program can be given: {name!r}")
        if name in taken:  # with a hash of their own, keys are the same bytes and yet two
            raise ValueError(f"os.environ has two values for one name: {name!r}")
        taken[name] = value
    return Environment(tuple(taken.items()))


def keep_given_directory() -> None:
    """Remembers the directory as the one that the kernel was given; called before any user code."""
    global _given_directory
    try:
        _given_directory = os.getcwdb()
    except FileNotFoundError:  # it has been deleted since
        _given_directory = b""


def is_given(directory: bytes) -> bool:
    """Tells whether the kernel was given this directory, and no cell has chosen it."""
    return directory == _given_directory


def take_directory() -> bytes:
    """Returns the kernel's directory by its real path; raises FileNotFoundError if it was deleted."""
    try:
        return os.getcwdb()
    except FileNotFoundError:
        problem = "the working directory was deleted, so no command in it can be approved; use os.chdir() first"
        raise FileNotFoundError(errno.ENOENT, problem) from None


def directory_of(pid: int) -> bytes:
    """Returns the directory of another process; the given one where the system does not tell."""
    try:
        return os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        return _given_directory


def _usable_shell(shell: bytes | None) -> bytes:
    return shell if shell is not None and shell.rpartition(b"/")[2] in _SHELLS else b"/bin/sh"
