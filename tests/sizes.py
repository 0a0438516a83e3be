"""How much memory values take."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from kernelbox import OutputItem


def kept_bytes(outputs: Iterable[OutputItem]) -> int:
    """Returns what outputs take, each of their parts counted by itself."""
    return sum(
        sys.getsizeof(item)
        + sum(sys.getsizeof(part) for part in (item.text, item.name, item.display_id))
        + _deep_size(item.data)
        + _deep_size(item.metadata)
        for item in outputs
    )


def _deep_size(value: object) -> int:
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(_deep_size(key) + _deep_size(item) for key, item in value.items())
    if isinstance(value, list):
        return sys.getsizeof(value) + sum(map(_deep_size, value))
    return sys.getsizeof(value)
