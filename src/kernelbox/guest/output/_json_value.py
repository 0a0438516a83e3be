"""The value of a cell as JSON, for programs: only what is JSON already, so that it means the same on both sides."""

from __future__ import annotations

import math
from typing import Any

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import to_json
from kernelbox.wire._json import MAX_DEPTH
from kernelbox.wire._schema import MAX_VALUE

keep_builtins(globals())

# Parts of a value. Looking at so many takes some milliseconds; larger data is better read by other ways.
_MOST_PARTS = 100_000

# In bits: every process can write and read whole numbers of this size, with any limit of digits.
_LONGEST_INT = 2_000

_SIMPLE = frozenset({str, bool, int, float})


def json_value(value: object) -> str:
    """Returns a value as JSON; "" if it is not JSON as it is, or too large.

    It is JSON if it and all its parts are exactly str, int, float, bool, None, list, or dict with str as keys. A
    subclass, a tuple or a nan is not. No user code runs.
    """
    if type(value) is int and value.bit_length() <= _LONGEST_INT:
        return int.__repr__(value)
    if type(value) not in _SIMPLE and type(value) is not list and type(value) is not dict:
        return ""
    try:
        text = to_json(_Copier().copy(value))
        text.encode()  # halves of characters have no form in UTF-8
    except (ValueError, RuntimeError):  # it is not JSON, or another thread changes it
        return ""
    return text if len(text) <= MAX_VALUE else ""


class _Copier:
    """Copies JSON values, which other threads may change meanwhile; raises ValueError for all others."""

    def __init__(self) -> None:
        self._parts = _MOST_PARTS
        self._characters = MAX_VALUE

    def copy(self, value: Any, depth: int = 0) -> Any:
        self._parts -= 1
        if self._parts < 0 or depth > MAX_DEPTH:
            raise ValueError
        kind = type(value)
        if kind is str:
            self._characters -= len(value)
            if self._characters < 0:
                raise ValueError
        elif kind is int:
            if value.bit_length() > _LONGEST_INT:
                raise ValueError
        elif kind is float:
            if not math.isfinite(value):
                raise ValueError
        elif kind is list:
            return [self.copy(part, depth + 1) for part in value]
        elif kind is dict:
            return {self._key(key): self.copy(part, depth + 1) for key, part in value.items()}
        elif value is not None and kind is not bool:
            raise ValueError
        return value

    def _key(self, key: object) -> Any:
        if type(key) is not str:
            raise ValueError
        return self.copy(key)
