"""What the callers of a server may choose for a kernel: interpreters and packages that its operator has named."""

from __future__ import annotations

import os
import re

from kernelbox.base._errors import InvalidInput
from kernelbox.host.pythons._probing import probe
from kernelbox.host.pythons._requirements import check_requirements
from kernelbox.host.pythons._searching import find_python
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Stands for all packages.
ANY = "*"

# A name, its extras and its versions; an address could bring a package of the same name from anywhere.
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9._,-]*\])?([<>=!~][A-Za-z0-9.,<>=!~*+]*)?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class AllowedPythons:
    """Interpreters as (word, path), by the words that callers use, and names of packages; nothing by default."""

    interpreters: tuple[tuple[str, str], ...] = ()
    packages: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.interpreters or self.packages)

    def interpreter(self, wanted: str | None) -> str | None:
        """Returns the path of the interpreter that a caller chooses; raises InvalidInput for one that is not named."""
        if wanted is None:
            return None
        found = dict(self.interpreters)
        if wanted not in found:
            allowed = f"use {_one_of(found)}" if found else "callers of this server cannot choose one (--allow-python)"
            raise InvalidInput("python", wanted, allowed)
        return found[wanted]

    def requirements(self, wanted: Sequence[str] | None) -> list[str] | None:
        """Returns the packages that a caller asks for; raises InvalidInput for one that is not named."""
        if wanted is None:
            return None
        if not self.packages:
            raise InvalidInput("requirements", wanted, "this server installs nothing for callers (--allow-package)")
        packages = list(check_requirements(list(wanted)).packages)
        for each in [] if ANY in self.packages else packages:
            named = _NAMED.fullmatch(each)
            if named is None or _normal(named[1]) not in self.packages:
                allowed = f"this server installs {_one_of(self.packages)}, with versions such as {'pandas>=2'!r}"
                raise InvalidInput("requirements", each, allowed)
        return packages


def allow_pythons(words: Mapping[str, str], packages: Sequence[str], cwd: str, *, sandboxed: bool) -> AllowedPythons:
    """Returns what an operator allows; raises InvalidInput or StartFailed for an interpreter that cannot be used.

    `words` maps what callers say to what `find_python` looks for.
    """
    if sandboxed and ANY in packages:
        raise InvalidInput(
            "--allow-package", ANY, "packages are installed outside of the sandbox, so name those that you trust"
        )
    for name in packages:
        if name != ANY and not _NAME.fullmatch(name):
            raise InvalidInput("--allow-package", name, "use the name of a package, without versions, or *")
    found = {word: find_python(meant, cwd) for word, meant in words.items()}
    for path in found.values():
        probe(path, bare=bool(packages))
    return AllowedPythons(tuple(found.items()), frozenset(map(_normal, packages)))


def settled_words(words: Iterable[str]) -> dict[str, str]:
    """Returns words with a meaning that does not depend on the current directory."""
    return {
        word: os.path.abspath(os.path.expanduser(word)) if os.sep in word or os.path.isdir(word) else word
        for word in words
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _one_of(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in sorted(names)[:20])
