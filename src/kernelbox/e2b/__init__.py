"""E2B's code interpreter on local kernels: `from kernelbox.e2b import Sandbox` in the place of E2B's own import."""

from __future__ import annotations

from kernelbox.e2b._asyncio_sandbox import AsyncSandbox
from kernelbox.e2b._blocking_sandbox import Sandbox
from kernelbox.e2b._e2b_values import (
    CommandExitException,
    CommandResult,
    Context,
    EntryInfo,
    Execution,
    ExecutionError,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    Logs,
    NoCounterpart,
    NotFoundException,
    OutputMessage,
    Result,
    SandboxException,
    SandboxInfo,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
    WriteInfo,
)

__all__ = [
    "AsyncSandbox",
    "CommandExitException",
    "CommandResult",
    "Context",
    "EntryInfo",
    "Execution",
    "ExecutionError",
    "FileNotFoundException",
    "FileType",
    "InvalidArgumentException",
    "Logs",
    "NoCounterpart",
    "NotFoundException",
    "OutputMessage",
    "Result",
    "Sandbox",
    "SandboxException",
    "SandboxInfo",
    "SandboxNotFoundException",
    "SandboxNotRunningException",
    "TimeoutException",
    "WriteInfo",
]
