"""Checks of a server's address and token."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput

_LARGEST_PORT = 65535

# Shorter tokens can be guessed.
_SHORTEST_TOKEN = 16


def join_address(host: str, port: int) -> str:
    """Returns a host and a port as they are written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_port(port: object) -> int:
    """Returns the number of a port, 0 for any; raises InvalidInput, because the system would use the remainder."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= _LARGEST_PORT:
        raise InvalidInput("port", port, f"use a whole number from 0 to {_LARGEST_PORT}")
    return port


def check_token(secret: str, name: str = "a token") -> str:
    """Returns a token; raises InvalidInput for one that can be guessed or cannot be sent in a header."""
    if len(secret) < _SHORTEST_TOKEN or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InvalidInput.saying(
            f"{name} needs {_SHORTEST_TOKEN} or more ASCII letters, digits or punctuation, without spaces; "
            "`openssl rand -hex 24` makes a good one"
        )
    return secret
