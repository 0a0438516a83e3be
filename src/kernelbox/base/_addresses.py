"""Addresses of servers, as they are written in URLs."""

from __future__ import annotations


def join_address(host: str, port: int) -> str:
    """Returns a host and a port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
