"""Addresses of servers, as they are written in URLs."""

from __future__ import annotations

from kernelbox.base._errors import InvalidInput

_LARGEST_PORT = 65535


def join_address(host: str, port: int) -> str:
    """Returns a host and a port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_port(port: object) -> int:
    """Returns the number of a port, 0 for any; raises InvalidInput. The system takes others for the remainder."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= _LARGEST_PORT:
        raise InvalidInput("port", port, f"use a whole number from 0 to {_LARGEST_PORT}")
    return port
