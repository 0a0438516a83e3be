"""Metrics for Prometheus: the cells of this server, and the kernels of the home."""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kernelbox.host.store._record import KernelRecord
from kernelbox.wire._results import ExecutionResult

# Seconds: from a cell that does nothing to one that trains a model.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

# What is measured of each kernel, by the name that its limit has.
_USAGE = (
    ("memory", "memory_bytes", "Memory of a kernel and all that it started"),
    ("cpu", "cpu_seconds", "Processor time of a kernel and all that it started"),
    ("processes", "processes", "Processes and threads of a kernel"),
)

_STATES = ("idle", "running", "dead", "unknown")

_STATUSES = ("success", "error", "timeout", "max_attempts_exceeded")


class Metrics:
    """Counts executions and requests as they end; looks at kernels when it is asked."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._rendering = threading.Lock()  # two requests at once would clear each other's gauges
        self._executions = Counter(
            "kernelbox_executions", "Cells that have ended, by status", ["status"], registry=self._registry
        )
        self._by_status = {status: self._executions.labels(status) for status in _STATUSES}
        self._failures = Counter(
            "kernelbox_failures", "Cells that failed, by cause", ["cause"], registry=self._registry
        )
        self._seconds = Histogram(
            "kernelbox_execution_seconds", "How long cells took", buckets=_BUCKETS, registry=self._registry
        )
        self._running = Gauge(
            "kernelbox_executions_running", "Cells that run or wait in this server", registry=self._registry
        )
        self._kernels = Gauge("kernelbox_kernels", "Kernels in the home, by state", ["state"], registry=self._registry)
        self._usage = {
            name: Gauge(f"kernelbox_kernel_{what}", sentence, ["kernel"], registry=self._registry)
            for name, what, sentence in _USAGE
        }
        self._limits = Gauge(
            "kernelbox_kernel_limit",
            "What a kernel may use: bytes, seconds or numbers",
            ["kernel", "limit"],
            registry=self._registry,
        )
        self._began = Gauge("kernelbox_start_time_seconds", "When this server began", registry=self._registry)
        self._began.set(time.time())

    def count(self, result: ExecutionResult) -> None:
        """Counts a cell that has ended."""
        self._by_status[result.status].inc()
        self._seconds.observe(result.duration_ms / 1000)
        if not result.ok:
            self._failures.labels(cause_of(result)).inc()

    def render(self, records: list[KernelRecord], running: int) -> bytes:
        """Returns all of them in Prometheus's format, with what was measured of the kernels."""
        with self._rendering:
            self._running.set(running)
            states: Tally[str] = Tally(record.status for record in records)
            for state in _STATES:
                self._kernels.labels(state).set(states[state])
            for gauge in (*self._usage.values(), self._limits):
                gauge.clear()
            for record in records:
                for name, amount in (record.usage or {}).items():
                    self._usage[name].labels(record.name).set(amount)
                for name, amount in record.limits.items() if record.alive else ():
                    self._limits.labels(record.name, name).set(amount)
            return generate_latest(self._registry)


def cause_of(result: ExecutionResult) -> str:
    """Returns why a cell failed, as one of a few words: a cell must not choose the values of a label."""
    if result.status == "timeout":
        return "timeout"
    return {"died": "death", "never ran": "not run", "interrupted": "interrupt", "restarted": "timeout"}.get(
        result.ending, "exception"
    )
