"""The parts of kernelbox that need more packages than the default install has: `pip install 'kernelbox[mcp]'`."""

from __future__ import annotations

from kernelbox.base._errors import MissingExtra
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    ExtraName = Literal["mcp", "jupyter", "otel"]


@dataclass(frozen=True, slots=True)
class Extra:
    """What an extra is for, and modules that are importable only where it is installed."""

    purpose: str
    modules: tuple[str, ...]


EXTRAS: dict[ExtraName, Extra] = {
    # mcp_types is new in version 2 of the SDK: an environment with an older one has no usable SDK.
    "mcp": Extra("the MCP server and tools in code", ("mcp", "mcp_types", "httpx2", "anyio")),
    "jupyter": Extra("other kernels, Jupyter's clients and KernelClient", ("jupyter_client", "zmq", "httpx2")),
    "otel": Extra("traces", ("fastapi.telemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
}

_found: set[str] = set()


def require(extra: ExtraName) -> None:
    """Raises MissingExtra, with what to install, if an extra is not installed."""
    if lacking := missing(extra):
        raise MissingExtra(extra, EXTRAS[extra].purpose, lacking)


def missing(extra: ExtraName) -> str:
    """Returns a module of an extra that is not installed, "" if all are. It imports none of them."""
    if extra in _found:
        return ""
    lacking = next((module for module in EXTRAS[extra].modules if not _is_there(module)), "")
    if not lacking:
        _found.add(extra)
    return lacking


def _is_there(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ImportError:  # of the package that it is in
        return False
