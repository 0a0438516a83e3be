"""Plain values made of what a cell passes: exact built-in types, which run no code of the cell's when they are used.

A subclass of `str` may say one thing when it is shown and another when it is run; a list may be changed in between.
What is made here is made once, and both shown and run.
"""

from __future__ import annotations

from typing import Any

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._json import Converter, TooLarge, type_name

keep_builtins(globals())


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


def to_text(data: bytes) -> str:
    """Returns bytes of the system as text; what is no UTF-8 in them stays what it is, as halves of characters."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """Returns the bytes that `to_text` has made a text of."""
    return text.encode("utf-8", "surrogateescape")


def plain_args(args: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a tool call as plain JSON values; raises TypeError or ValueError if there are none."""
    if not issubclass(type(args), dict):
        raise TypeError(f"the arguments of a tool must be a dict, not {type_name(args)}")
    try:
        made: dict[str, Any] = Converter(strict=True).convert(args)
    except TooLarge as exc:
        raise ValueError(str(exc)) from None
    return made
