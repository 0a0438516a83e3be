"""Python's built-in names as they were before any code of a user's: a cell can put others in their place."""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_builtins = dict(vars(builtins))

# Names that the standard library, which has the built-in names of the moment, cannot do without.
_NEEDED = ("dict", "getattr", "hasattr", "int", "isinstance", "iter", "len", "list", "next", "str", "super", "type")


def keep_builtins(names: dict[str, Any]) -> None:
    """Has the functions that a module defines after this use the built-in names as they are now.

    `names` are the module's globals: a function takes its built-in names from what `__builtins__` is there when it is
    defined.
    """
    names["__builtins__"] = _builtins


def find_replaced() -> list[str]:
    """Returns the names without which little works, and in whose place a cell has put something else or nothing."""
    now = vars(builtins)
    return [name for name in _NEEDED if now.get(name) is not _builtins[name]]


def replace_builtin(name: str, value: object) -> None:
    """Has those functions use another of ours in the place of a built-in name."""
    _builtins[name] = value
