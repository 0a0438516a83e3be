"""Persistent, named Python kernels for AI agents."""

from __future__ import annotations

__version__ = "0.2.0"

# Where each public name lives; a module is imported when one of its names is first used.
_HOMES = {
    "ApprovalClosed": "kernelbox._errors",
    "ApprovalPolicy": "kernelbox._approvals",
    "ApprovalRejectedError": "kernelbox.wire._approvals",
    "ApprovalRequest": "kernelbox._approvals",
    "ApprovalRule": "kernelbox._approvals",
    "AttemptSnapshot": "kernelbox.wire._results",
    "CodeExecutionChunk": "kernelbox._executor",
    "CodeExecutionError": "kernelbox._errors",
    "CodeExecutionResult": "kernelbox._executor",
    "CodeExecutor": "kernelbox._executor",
    "ErrorInfo": "kernelbox.wire._results",
    "ExecutionResult": "kernelbox.wire._results",
    "ExecutionTimeout": "kernelbox._errors",
    "ExecutorStopped": "kernelbox._errors",
    "InvalidInput": "kernelbox._errors",
    "KernelBoxConfig": "kernelbox._config",
    "KernelBoxError": "kernelbox._errors",
    "KernelDied": "kernelbox._errors",
    "KernelExists": "kernelbox._errors",
    "KernelNotFound": "kernelbox._errors",
    "KernelRecord": "kernelbox.host._record",
    "OutputItem": "kernelbox.wire._results",
    "StartFailed": "kernelbox._errors",
    "StoreFailed": "kernelbox._errors",
    "SyncApprovalRequest": "kernelbox._approvals",
    "Variable": "kernelbox._executor",
    "create": "kernelbox._api",
    "destroy": "kernelbox._api",
    "execute": "kernelbox._api",
    "execute_with_retry": "kernelbox._api",
    "get_or_create": "kernelbox._api",
    "interrupt": "kernelbox._api",
    "list_kernels": "kernelbox._api",
    "restart": "kernelbox._api",
    "status": "kernelbox._api",
    "stream": "kernelbox._api",
    "wipe": "kernelbox._api",
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
    "InvalidInput",
    "KernelBoxConfig",
    "KernelBoxError",
    "KernelDied",
    "KernelExists",
    "KernelNotFound",
    "KernelRecord",
    "OutputItem",
    "StartFailed",
    "StoreFailed",
    "SyncApprovalRequest",
    "Variable",
    "create",
    "destroy",
    "execute",
    "execute_with_retry",
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
    from kernelbox._api import (
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
    from kernelbox._approvals import ApprovalPolicy, ApprovalRequest, ApprovalRule, SyncApprovalRequest
    from kernelbox._config import KernelBoxConfig
    from kernelbox._errors import (
        ApprovalClosed,
        CodeExecutionError,
        ExecutionTimeout,
        ExecutorStopped,
        InvalidInput,
        KernelBoxError,
        KernelDied,
        KernelExists,
        KernelNotFound,
        StartFailed,
        StoreFailed,
    )
    from kernelbox._executor import CodeExecutionChunk, CodeExecutionResult, CodeExecutor, Variable
    from kernelbox.host._record import KernelRecord
    from kernelbox.wire._approvals import ApprovalRejectedError
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
