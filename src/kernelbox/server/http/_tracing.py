"""Traces, by OpenTelemetry: a span for each request, which FastAPI makes, and one in it for each cell.

They are sent where the variable OTEL_EXPORTER_OTLP_ENDPOINT says; without it nothing is recorded, and the SDK is not
imported. Neither code, nor what it writes, nor a token is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from opentelemetry import trace

from kernelbox import __version__
from kernelbox.base._environment import host_variable
from kernelbox.host.store._record import KernelRecord
from kernelbox.server.http._metrics import cause_of
from kernelbox.wire._results import ExecutionResult

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from fastapi.telemetry import TelemetryConfig

# Paths that monitors request every few seconds; their spans would be noise.
_PROBES = ("/health", "/ready", "/metrics")

# Either of them says where spans are sent.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_tracer = trace.get_tracer("kernelbox", __version__)

# Whether spans go anywhere, as it is when the server begins: by a variable, or by a program that has set that up before
# us. Spans that go nowhere take time all the same.
_IS_TRACED = any(map(host_variable, _ENDPOINTS)) or not isinstance(
    trace.get_tracer_provider(), trace.ProxyTracerProvider
)


def telemetry() -> TelemetryConfig:
    """Returns what FastAPI records: spans of requests. Metrics are Prometheus's, and exceptions are in the log."""
    return {
        "tracing": _IS_TRACED,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": True,
        "exclude": _is_not_traced,
    }


def _is_not_traced(scope: MutableMapping[str, Any]) -> bool:
    """Returns whether a request has no span: a span has the query, and that may have a token in it."""
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return scope["path"] in _PROBES or any(name == "token" for name, _ in query)


class CellSpan:
    """The span of a cell, from the moment that it has a place in its kernel's queue."""

    __slots__ = ("_span",)

    def __init__(self, record: KernelRecord, language: str) -> None:
        self._span: trace.Span = trace.INVALID_SPAN
        if not _IS_TRACED:
            return
        about = {"kernelbox.kernel.id": record.kernel_id, "kernelbox.kernel.name": record.name}
        self._span = _tracer.start_span("kernelbox.cell", attributes={**about, "kernelbox.language": language})

    def end(self) -> None:
        self._span.end()

    def tell(self, result: ExecutionResult) -> None:
        """Adds the result of the cell to the span."""
        self._span.set_attribute("kernelbox.status", result.status)
        self._span.set_attribute("kernelbox.ending", result.ending)
        if not result.ok:
            self._span.set_attribute("error.type", cause_of(result))
            self._span.set_status(trace.StatusCode.ERROR)
