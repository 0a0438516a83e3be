"""The environment that commands run in: what the kernel was given, and what its cells have changed in it since.

The changes decide what a command does as much as its text: `PATH`, `BASH_ENV`, exported functions, `LD_PRELOAD`. So
they are shown to those who approve it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from kernelbox.guest._plain import plain_bytes, to_text
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

# The object that a cell knows as os.environ; taken here because a cell can put another in its place.
_environ = os.environ

_SHELLS = (b"bash", b"zsh", b"sh", b"dash", b"ksh")

_given: dict[bytes, bytes] = {}


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
        changed = {name: value for name, value in now.items() if _given.get(name) != value}
        removed = dict.fromkeys(_given.keys() - now.keys())
        return {
            to_text(name): value if value is None else to_text(value) for name, value in {**changed, **removed}.items()
        }


def keep_given() -> None:
    """Remembers the environment as the one that the kernel was given; called before any code of a user's."""
    global _given
    _given = dict(take_environment().pairs)


def given_shell() -> bytes:
    """Returns what runs `!commands` that were approved, whatever a cell has made of SHELL."""
    return _usable_shell(_given.get(b"SHELL"))


def take_environment() -> Environment:
    """Returns the environment as it is now; raises TypeError or ValueError if a cell has spoilt it."""
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


def _usable_shell(shell: bytes | None) -> bytes:
    return shell if shell is not None and shell.rpartition(b"/")[2] in _SHELLS else b"/bin/sh"
