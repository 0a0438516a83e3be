"""Exact built-in values, made from what a cell passes. Using them runs no code of the cell.

A subclass of `str` may say one thing when it is shown and another when it is run; a list may be changed in between.
Each value is made once, and the same value is shown and run.
"""

from __future__ import annotations

from typing import Any

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._json import Converter, TooLarge, type_name

keep_builtins(globals())


def plain_text(value: str, what: str = "a command") -> str:
    """Returns an exact copy of a text; raises TypeError if it is not a str."""
    if not issubclass(type(value), str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return str.__str__(value)


def plain_bytes(value: bytes, what: str) -> bytes:
    """Returns an exact copy of bytes; raises TypeError if the value is not bytes."""
    if not issubclass(type(value), bytes):
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}")
    return bytes.__getitem__(value, slice(None))


def to_text(data: bytes) -> str:
    """Returns bytes of the system as text. Bytes that are not UTF-8 become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """Reverses `to_text`."""
    return text.encode("utf-8", "surrogateescape")


def plain_args(args: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a tool call as plain JSON values; raises TypeError or ValueError if it cannot."""
    if not issubclass(type(args), dict):
        raise TypeError(f"the arguments of a tool must be a dict, not {type_name(args)}")
    try:
        made: dict[str, Any] = Converter(strict=True).convert(args)
    except TooLarge as exc:
        raise ValueError(str(exc)) from None
    return made
