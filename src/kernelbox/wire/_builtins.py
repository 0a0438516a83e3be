"""Python's built-in names as they were before any user code ran: a cell can replace them."""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_builtins = dict(vars(builtins))

# Names that the standard library needs; it uses the built-in names of the moment, so a cell can break it.
_NEEDED = ("dict", "getattr", "hasattr", "int", "isinstance", "iter", "len", "list", "next", "str", "super", "type")


def keep_builtins(names: dict[str, Any]) -> None:
    """Makes the functions that a module defines after this call use the original built-in names.

    `names` are the module's globals: a function takes its built-in names from their `__builtins__` when it is defined.
    """
    names["__builtins__"] = _builtins


def find_replaced() -> list[str]:
    """Returns the needed names that a cell has replaced or removed."""
    now = vars(builtins)
    return [name for name in _NEEDED if now.get(name) is not _builtins[name]]


def replace_builtin(name: str, value: object) -> None:
    """Makes those functions use `value` for a built-in name."""
    _builtins[name] = value
