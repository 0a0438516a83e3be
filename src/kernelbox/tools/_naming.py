"""Names of servers and tools as Python's: any text becomes a module's name, and no two become the same."""

from __future__ import annotations

import keyword
import re

from kernelbox.base._errors import InvalidInput
from kernelbox.wire._messages import SHELL_SERVER

# Characters of a module's name: file systems take 255 bytes.
_LONGEST = 100


def module_name(name: str) -> str:
    """Returns a name for a module: a lower-case identifier that is no keyword.

    It begins with no underscore: those names are Python's and our own in a package (`__path__`, `_server`).
    """
    words = re.sub(r"\W+", "_", name, flags=re.ASCII).lower()[:_LONGEST]
    if not words or words[0] == "_":
        words = f"tool{words}"
    elif words[0].isdigit():
        words = f"tool_{words}"
    return f"{words}_" if keyword.iskeyword(words) else words


def module_names(names: list[str]) -> dict[str, str]:
    """Returns a module's name for each name; where several would get the same one, the others get a number.

    A name that is a module's name already keeps it. The order of the list does not matter: a server may change it.
    """
    modules: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(names), key=lambda name: (module_name(name) != name, name)):
        wanted = module = module_name(name)
        number = 1
        while module in taken:
            number += 1
            module = f"{wanted}_{number}"
        modules[name] = module
        taken.add(module)
    return modules


def check_server_name(name: object) -> str:
    """Returns a server's name; raises InvalidInput for one that cannot be used."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InvalidInput("the name of a server", name, f"use a word of 1 to {_LONGEST} characters")
    if name == SHELL_SERVER or module_name(name) == SHELL_SERVER:
        raise InvalidInput("the name of a server", name, "shell commands are asked for under this name; use another")
    return name
