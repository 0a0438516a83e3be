"""Traces, by OpenTelemetry: a span for each request, which FastAPI makes, and one in it for each cell.

They are sent where the variable OTEL_EXPORTER_OTLP_ENDPOINT says; without it nothing is recorded, and the SDK is not
imported. Neither code, nor what it writes, nor a token is in them. They need the packages of `kernelbox[otel]`.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from kernelbox import __version__
from kernelbox.base._environment import host_variable
from kernelbox.base._errors import MissingExtra
from kernelbox.base._extras import missing, require
from kernelbox.host.store._record import KernelRecord
from kernelbox.server.http._metrics import cause_of
from kernelbox.wire._results import ExecutionResult

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from opentelemetry.trace import Span

# Paths that monitors request every few seconds; their spans would be noise.
_PROBES = ("/health", "/ready", "/metrics")

# Either of them says where spans are sent.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_log = logging.getLogger("kernelbox.server")


def _is_wanted() -> bool:
    """Returns whether spans go anywhere: by a variable, or by a program that has set that up before us."""
    if any(map(host_variable, _ENDPOINTS)):
        return True
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


# As it is when the server begins. Spans that go nowhere take time all the same.
_WANTED = _is_wanted()
_IS_TRACED = _WANTED and not missing("otel")


def telemetry() -> dict[str, Any]:
    """Returns what FastAPI should record: spans of requests. Metrics are Prometheus's, exceptions are in the log.

    FastAPI before 0.162 records nothing, and gets no settings.
    """
    from importlib.util import find_spec

    if find_spec("fastapi.telemetry") is None:
        return {}
    chosen = {
        "tracing": _IS_TRACED,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": True,
        "exclude": _is_not_traced,
    }
    return {"telemetry": chosen}


def warn_without_traces() -> None:
    """Logs what to install where traces are asked for and cannot be made."""
    if _WANTED and not _IS_TRACED:
        try:
            require("otel")
        except MissingExtra as exc:
            _log.warning("%s", exc)


def _is_not_traced(scope: MutableMapping[str, Any]) -> bool:
    """Returns whether a request has no span: a span has the query, and that may have a token in it."""
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return scope["path"] in _PROBES or any(name == "token" for name, _ in query)


class CellSpan:
    """The span of a cell, from the moment that it has a place in its kernel's queue."""

    __slots__ = ("_span",)

    def __init__(self, record: KernelRecord, language: str) -> None:
        self._span: Span | None = None
        if not _IS_TRACED:
            return
        from opentelemetry import trace

        tracer = trace.get_tracer("kernelbox", __version__)
        about = {"kernelbox.kernel.id": record.kernel_id, "kernelbox.kernel.name": record.name}
        self._span = tracer.start_span("kernelbox.cell", attributes={**about, "kernelbox.language": language})

    def end(self) -> None:
        if self._span is not None:
            self._span.end()

    def tell(self, result: ExecutionResult) -> None:
        """Adds the result of the cell to the span."""
        if self._span is None:
            return
        self._span.set_attribute("kernelbox.status", result.status)
        self._span.set_attribute("kernelbox.ending", result.ending)
        if not result.ok:
            self._span.set_attribute("error.type", cause_of(result))
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR)
