"""The values of the API at their import path of KernelBox 0.1."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from kernelbox.host.store._record import KernelRecord
from kernelbox.host.store._record import now as utc_now
from kernelbox.wire._results import AttemptSnapshot, ErrorInfo, ExecutionResult, OutputItem

KernelStatus = Literal["running", "idle", "dead", "unknown"]
ExecutionStatus = Literal["success", "error", "timeout", "max_attempts_exceeded"]

__all__ = [
    "AttemptSnapshot",
    "ErrorInfo",
    "ExecutionResult",
    "ExecutionStatus",
    "KernelRecord",
    "KernelStatus",
    "OutputItem",
    "parse_timestamp",
    "utc_now",
]


def parse_timestamp(value: str) -> datetime:
    """Reads a time of a record."""
    return datetime.fromisoformat(value)
