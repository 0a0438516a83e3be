"""Plain values made of what a cell passes: exact built-in types, which run no code of the cell's when they are used.

A subclass of `str` may say one thing when it is shown and another when it is run; a list may be changed in between.
What is made here is made once, and both shown and run.
"""

from __future__ import annotations

import base64
import math
from itertools import islice
from typing import Any

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

# Far beyond what a tool call needs, well within what both sides pack and unpack without trouble.
_DEEPEST = 50
_MOST_VALUES = 100_000
_LONGEST = 8_000_000

# Python reads 640 digits back in every process, however sys.set_int_max_str_digits is set.
_LARGEST_BITS = 2_100


def plain_text(value: str, what: str = "a command") -> str:
    """Returns an exact copy of a text; raises TypeError if it is none."""
    if not issubclass(type(value), str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return str.__str__(value)


def plain_bytes(value: bytes, what: str) -> bytes:
    """Returns an exact copy of bytes; raises TypeError if they are none."""
    if not issubclass(type(value), bytes):
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}")
    return bytes.__getitem__(value, slice(None))


def plain_args(args: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a tool call as plain JSON values; raises TypeError or ValueError if there are none."""
    if not issubclass(type(args), dict):
        raise TypeError(f"the arguments of a tool must be a dict, not {type(args).__name__}")
    made: dict[str, Any] = _Maker().make(args, 0)
    return made


class _Maker:
    """Makes one value plain, and keeps count of how much it is."""

    def __init__(self) -> None:
        self._values = 0
        self._length = 0

    def make(self, value: Any, depth: int) -> Any:
        self._count(depth)
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return self._measure(str.__str__(value))
        if issubclass(kind, int):
            return _number(int.__index__(value))
        if issubclass(kind, float):
            return _number(float.__float__(value))
        if issubclass(kind, dict):
            pairs = tuple(dict.items(value))
            return {self._key(key): self.make(item, depth + 1) for key, item in pairs}
        if issubclass(kind, list):
            return self._list(list.__getitem__(value, slice(None)), depth)
        if issubclass(kind, tuple):
            return self._list(tuple.__getitem__(value, slice(None)), depth)
        return self._other(value, kind, depth)

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        """Makes the same of values without a form in JSON as the wire does: dates, bytes, sets, numbers of numpy."""
        if issubclass(kind, bytes):
            return self._measure(base64.b64encode(plain_bytes(value, "a value")).decode("ascii"))
        if hasattr(kind, "isoformat"):
            return self._measure(plain_text(value.isoformat(), "a date"))
        if hasattr(kind, "__iter__"):
            return self._list(islice(value, _MOST_VALUES + 1), depth)
        if hasattr(kind, "__index__"):
            return _number(int.__index__(value.__index__()))
        if hasattr(kind, "__float__"):
            return _number(float.__float__(value.__float__()))
        raise TypeError(f"a tool cannot be given a {kind.__name__}: it has no form in JSON")

    def _list(self, items: Any, depth: int) -> list[Any]:
        return [self.make(item, depth + 1) for item in items]

    def _key(self, key: object) -> str:
        if not issubclass(type(key), str):
            raise TypeError(f"the names in a tool's arguments must be str, not {type(key).__name__}")
        return self._measure(str.__str__(key))

    def _measure(self, text: str) -> str:
        self._length += len(text)
        if self._length > _LONGEST:
            raise ValueError(f"the arguments of a tool are longer than {_LONGEST:,} characters")
        return text

    def _count(self, depth: int) -> None:
        self._values += 1
        if depth > _DEEPEST:
            raise ValueError(f"the arguments of a tool are nested more than {_DEEPEST} levels deep")
        if self._values > _MOST_VALUES:
            raise ValueError(f"the arguments of a tool have more than {_MOST_VALUES:,} values")


def _number(number: Any) -> Any:
    if type(number) is float and not math.isfinite(number):
        raise ValueError(f"a tool cannot be given {number}: it has no form in JSON")
    if type(number) is int and number.bit_length() > _LARGEST_BITS:
        raise ValueError(f"a tool cannot be given a number of {number.bit_length():,} bits")
    return number
