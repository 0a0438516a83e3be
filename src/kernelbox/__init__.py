"""Persistent, named Python kernels for AI agents."""

from __future__ import annotations

__version__ = "0.2.0"

# Where each public name lives; a module is imported when one of its names is first used.
_HOMES = {
    "ApprovalClosed": "kernelbox.base._errors",
    "ApprovalPolicy": "kernelbox.core.approvals._policy",
    "ApprovalRejectedError": "kernelbox.wire._messages",
    "ApprovalRequest": "kernelbox.core.approvals._requests",
    "ApprovalRule": "kernelbox.core.approvals._policy",
    "AttemptSnapshot": "kernelbox.wire._results",
    "CodeExecutionChunk": "kernelbox.core._executor_values",
    "CodeExecutionError": "kernelbox.base._errors",
    "CodeExecutionResult": "kernelbox.core._executor_values",
    "CodeExecutor": "kernelbox.api._executor",
    "ErrorInfo": "kernelbox.wire._results",
    "ExecutionResult": "kernelbox.wire._results",
    "ExecutionTimeout": "kernelbox.base._errors",
    "ExecutorStopped": "kernelbox.base._errors",
    "InheritedStream": "kernelbox.base._errors",
    "InvalidInput": "kernelbox.base._errors",
    "KernelBoxConfig": "kernelbox.base._config",
    "KernelBoxError": "kernelbox.base._errors",
    "KernelDied": "kernelbox.base._errors",
    "KernelExists": "kernelbox.base._errors",
    "KernelNotFound": "kernelbox.base._errors",
    "KernelRecord": "kernelbox.host.store._record",
    "Limits": "kernelbox.base._limits",
    "OutputItem": "kernelbox.wire._results",
    "StartFailed": "kernelbox.base._errors",
    "StoreFailed": "kernelbox.base._errors",
    "SyncApprovalRequest": "kernelbox.core.approvals._requests",
    "ToolError": "kernelbox.wire._messages",
    "ToolEvent": "kernelbox.core._executor_values",
    "ToolServerFailed": "kernelbox.base._errors",
    "Variable": "kernelbox.core._executor_values",
    "create": "kernelbox.api._sync",
    "destroy": "kernelbox.api._sync",
    "execute": "kernelbox.api._sync",
    "execute_with_retry": "kernelbox.api._sync",
    "generate_mcp_sources": "kernelbox.tools._generate",
    "get_or_create": "kernelbox.api._sync",
    "interrupt": "kernelbox.api._sync",
    "list_kernels": "kernelbox.api._sync",
    "restart": "kernelbox.api._sync",
    "status": "kernelbox.api._sync",
    "stream": "kernelbox.api._sync",
    "wipe": "kernelbox.api._sync",
}

__all__ = [
    "ApprovalClosed",
    "ApprovalPolicy",
    "ApprovalRejectedError",
    "ApprovalRequest",
    "ApprovalRule",
    "AttemptSnapshot",
    "CodeExecutionChunk",
    "CodeExecutionError",
    "CodeExecutionResult",
    "CodeExecutor",
    "ErrorInfo",
    "ExecutionResult",
    "ExecutionTimeout",
    "ExecutorStopped",
    "InheritedStream",
    "InvalidInput",
    "KernelBoxConfig",
    "KernelBoxError",
    "KernelDied",
    "KernelExists",
    "KernelNotFound",
    "KernelRecord",
    "Limits",
    "OutputItem",
    "StartFailed",
    "StoreFailed",
    "SyncApprovalRequest",
    "ToolError",
    "ToolEvent",
    "ToolServerFailed",
    "Variable",
    "create",
    "destroy",
    "execute",
    "execute_with_retry",
    "generate_mcp_sources",
    "get_or_create",
    "interrupt",
    "list_kernels",
    "restart",
    "status",
    "stream",
    "wipe",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.api._executor import CodeExecutor
    from kernelbox.api._sync import (
        create,
        destroy,
        execute,
        execute_with_retry,
        get_or_create,
        interrupt,
        list_kernels,
        restart,
        status,
        stream,
        wipe,
    )
    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.base._errors import (
        ApprovalClosed,
        CodeExecutionError,
        ExecutionTimeout,
        ExecutorStopped,
        InheritedStream,
        InvalidInput,
        KernelBoxError,
        KernelDied,
        KernelExists,
        KernelNotFound,
        StartFailed,
        StoreFailed,
        ToolServerFailed,
    )
    from kernelbox.base._limits import Limits
    from kernelbox.core._executor_values import CodeExecutionChunk, CodeExecutionResult, ToolEvent, Variable
    from kernelbox.core.approvals._policy import ApprovalPolicy, ApprovalRule
    from kernelbox.core.approvals._requests import ApprovalRequest, SyncApprovalRequest
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.tools._generate import generate_mcp_sources
    from kernelbox.wire._messages import ApprovalRejectedError, ToolError
    from kernelbox.wire._results import AttemptSnapshot, ErrorInfo, ExecutionResult, OutputItem


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
