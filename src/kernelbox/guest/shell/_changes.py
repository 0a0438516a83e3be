"""Which variables a cell added, changed or removed, at a cost that depends on the cell and not on what lives around it.

Only names that the cell's code mentions can have changed, or that functions mention which it calls; these are compared
before and after. Code that can reach any name (`exec`, `globals()`, magics, `import *`) has all of them compared.
A variable has changed when it is bound to another object, or when its list, dict, set, array or dataframe has another
length or shape.
"""

from __future__ import annotations

from collections import deque
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._schema import MAX_CHANGED, MAX_VARIABLE

if TYPE_CHECKING:
    from kernelbox.guest.shell._shell import ZMQInteractiveShell

keep_builtins(globals())

_REACH_ALL = frozenset({"exec", "eval", "globals", "locals", "vars", "get_ipython", "setattr", "__main__", "__dict__"})
_IMPORT_STAR = ("*",)
_SIZED = frozenset({list, dict, set, bytearray, deque})
_SHAPED = frozenset({"ndarray", "DataFrame", "Series"})
_MISSING = (0, None)


class Changes:
    """Watches one cell: `see` each piece of code before it runs, then `report`."""

    def __init__(self, shell: ZMQInteractiveShell) -> None:
        self._ns = shell.user_ns
        self._hidden = shell.user_ns_hidden
        self._before: dict[str, tuple[int, object]] = {}
        self._seen: dict[int, CodeType] = {}  # by identity, kept so that no other code gets it
        self._all = False
        self.cut = False

    def see(self, code: CodeType) -> None:
        """Notes what the names in this code stand for, before it runs."""
        names: set[str] = set()
        self._collect(code, names)
        if not self._all and not _REACH_ALL.isdisjoint(names):
            self._all = True
            names.update(self._ns)
        for name in names:
            if name not in self._before:
                self._before[name] = self._look(name)

    def report(self) -> dict[str, list[str]]:
        """Returns the names that the cell added, changed and removed; sets `cut` if there are too many to tell."""
        if self._all:
            for name in self._ns:
                self._before.setdefault(name, _MISSING)
        added: list[str] = []
        changed: list[str] = []
        removed: list[str] = []
        for name, before in self._before.items():
            if type(name) is not str or name[:1] == "_" or name in self._hidden:
                continue  # `globals()` takes keys of any kind
            after = self._look(name)
            if after == before:
                continue
            (added if before is _MISSING else removed if after is _MISSING else changed).append(name)
        return {"added": self._fit(added), "changed": self._fit(changed), "removed": self._fit(removed)}

    def _fit(self, names: list[str]) -> list[str]:
        """Returns names in order, as many and as long as a message takes."""
        told = sorted(name for name in names if len(name) <= MAX_VARIABLE)[:MAX_CHANGED]
        self.cut |= len(told) < len(names)
        return told

    def _collect(self, code: CodeType, names: set[str]) -> None:
        """Collects the names in code, in the functions it defines, and in those of the user's that it mentions."""
        if id(code) in self._seen:
            return
        self._seen[id(code)] = code
        names.update(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._collect(constant, names)
            elif constant == _IMPORT_STAR:
                self._all = True
                names.update(self._ns)
        for name in code.co_names:
            value = self._ns.get(name)
            if type(value) is FunctionType and value.__globals__ is self._ns:
                self._collect(value.__code__, names)

    def _look(self, name: str) -> tuple[int, object]:
        value = self._ns.get(name, _MISSING)
        return _MISSING if value is _MISSING else (id(value), _extent(value))


def _extent(value: Any) -> object:
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind.__name__ in _SHAPED and kind.__module__.partition(".")[0] in ("numpy", "pandas"):
        return value.shape
    return None
