"""The headers of a request, by name, without an object for each look."""

from __future__ import annotations

from starlette.types import Scope


def all_of(scope: Scope, name: bytes) -> list[str]:
    """Returns the values of a header, whose name is in small letters as ASGI has them."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def first_of(scope: Scope, name: bytes, default: str = "") -> str:
    """Returns the first value of a header."""
    for key, value in scope["headers"]:
        if key == name:
            found: str = value.decode("latin-1")
            return found
    return default
