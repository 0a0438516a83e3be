"""Persistent, named Python kernels for AI agents."""

from __future__ import annotations

__version__ = "0.2.0"

# Where each public name lives; a module is imported when one of its names is first used.
_HOMES = {
    "ApprovalClosed": "kernelbox.base._errors",
    "ApprovalPolicy": "kernelbox.core.approvals._approval_policy",
    "ApprovalRejectedError": "kernelbox.wire._messages",
    "ApprovalRequest": "kernelbox.core.approvals._requests",
    "ApprovalRule": "kernelbox.core.approvals._approval_policy",
    "AsyncJob": "kernelbox.api._job",
    "AsyncKernel": "kernelbox.api._async_kernel",
    "AsyncPool": "kernelbox.api._kernel_pool",
    "AttemptSnapshot": "kernelbox.wire._results",
    "CannotCopy": "kernelbox.base._errors",
    "Checkpoint": "kernelbox.host.store._checkpoint_files",
    "CheckpointNotFound": "kernelbox.base._errors",
    "CodeExecutionChunk": "kernelbox.core._executor_values",
    "CodeExecutionError": "kernelbox.base._errors",
    "CodeExecutionResult": "kernelbox.core._executor_values",
    "CodeExecutor": "kernelbox.api._executor",
    "ErrorInfo": "kernelbox.wire._results",
    "ExecutionResult": "kernelbox.wire._results",
    "ExecutionTimeout": "kernelbox.base._errors",
    "ExecutorStopped": "kernelbox.base._errors",
    "FileInfo": "kernelbox.core._kernel_data",
    "InheritedStream": "kernelbox.base._errors",
    "InvalidInput": "kernelbox.base._errors",
    "Job": "kernelbox.api._job",
    "Kernel": "kernelbox.api._kernel",
    "KernelBoxConfig": "kernelbox.base._config",
    "KernelBoxError": "kernelbox.base._errors",
    "KernelBusy": "kernelbox.base._errors",
    "KernelDied": "kernelbox.base._errors",
    "KernelExists": "kernelbox.base._errors",
    "KernelNotFound": "kernelbox.base._errors",
    "KernelRecord": "kernelbox.host.store._record",
    "Limits": "kernelbox.base._limits",
    "MissingExtra": "kernelbox.base._errors",
    "OutputItem": "kernelbox.wire._results",
    "OutputNotKept": "kernelbox.base._errors",
    "PastCell": "kernelbox.core.cells._history",
    "Pool": "kernelbox.api._kernel_pool",
    "StartFailed": "kernelbox.base._errors",
    "StoreFailed": "kernelbox.base._errors",
    "SyncApprovalRequest": "kernelbox.core.approvals._requests",
    "ToolError": "kernelbox.wire._messages",
    "ToolEvent": "kernelbox.core._executor_values",
    "ToolServerFailed": "kernelbox.base._errors",
    "Variable": "kernelbox.core._executor_values",
    "branch": "kernelbox.api._copies",
    "checkpoint": "kernelbox.api._copies",
    "checkpoints": "kernelbox.api._copies",
    "create": "kernelbox.api._sync",
    "destroy": "kernelbox.api._sync",
    "drop": "kernelbox.api._copies",
    "execute": "kernelbox.api._sync",
    "execute_with_retry": "kernelbox.api._sync",
    "generate_mcp_sources": "kernelbox.tools._generate",
    "get_or_create": "kernelbox.api._sync",
    "interrupt": "kernelbox.api._sync",
    "list_kernels": "kernelbox.api._sync",
    "promote": "kernelbox.api._copies",
    "restart": "kernelbox.api._sync",
    "rollback": "kernelbox.api._copies",
    "status": "kernelbox.api._sync",
    "stream": "kernelbox.api._sync",
    "wipe": "kernelbox.api._sync",
}

__all__ = list(_HOMES)

# Always false. Jedi, which takes a plain `False` at its word, reads what follows; type checkers read `__init__.pyi`.
TYPE_CHECKING = bool()  # noqa: UP018
if TYPE_CHECKING:
    from kernelbox.api._async_kernel import AsyncKernel
    from kernelbox.api._copies import branch, checkpoint, checkpoints, drop, promote, rollback
    from kernelbox.api._executor import CodeExecutor
    from kernelbox.api._job import AsyncJob, Job
    from kernelbox.api._kernel import Kernel
    from kernelbox.api._kernel_pool import AsyncPool, Pool
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
        CannotCopy,
        CheckpointNotFound,
        CodeExecutionError,
        ExecutionTimeout,
        ExecutorStopped,
        InheritedStream,
        InvalidInput,
        KernelBoxError,
        KernelBusy,
        KernelDied,
        KernelExists,
        KernelNotFound,
        MissingExtra,
        OutputNotKept,
        StartFailed,
        StoreFailed,
        ToolServerFailed,
    )
    from kernelbox.base._limits import Limits
    from kernelbox.core._executor_values import CodeExecutionChunk, CodeExecutionResult, ToolEvent, Variable
    from kernelbox.core._kernel_data import FileInfo
    from kernelbox.core.approvals._approval_policy import ApprovalPolicy, ApprovalRule
    from kernelbox.core.approvals._requests import ApprovalRequest, SyncApprovalRequest
    from kernelbox.core.cells._history import PastCell
    from kernelbox.host.store._checkpoint_files import Checkpoint
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.tools._generate import generate_mcp_sources
    from kernelbox.wire._messages import ApprovalRejectedError, ToolError
    from kernelbox.wire._results import AttemptSnapshot, ErrorInfo, ExecutionResult, OutputItem


# A program loads what opens kernels while files can still be opened. The command line loads it when it is needed.
_OPENING = (
    *("kernelbox.core._every_kernel", "kernelbox.core._starting", "kernelbox.core._name_terms"),
    *("kernelbox.host.engines._limiting", "kernelbox.host.files._lock"),
)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        sentence = f"module {__name__!r} has no attribute {name!r}"
        if not name.startswith("_"):
            from kernelbox.base._suggestions import did_you_mean

            sentence = "; ".join(filter(None, (sentence, did_you_mean(name, __all__))))
        raise AttributeError(sentence)
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    for module in _OPENING if _HOMES[name].startswith("kernelbox.api.") else ():
        importlib.import_module(module)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    hidden = ("TYPE_CHECKING", "annotations")
    return sorted({*globals(), *__all__}.difference(hidden))
