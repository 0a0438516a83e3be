"""Persistent, named Python kernels for AI agents."""

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

__version__: str
__all__ = [
    "ApprovalClosed",
    "ApprovalPolicy",
    "ApprovalRejectedError",
    "ApprovalRequest",
    "ApprovalRule",
    "AsyncJob",
    "AsyncKernel",
    "AsyncPool",
    "AttemptSnapshot",
    "CannotCopy",
    "Checkpoint",
    "CheckpointNotFound",
    "CodeExecutionChunk",
    "CodeExecutionError",
    "CodeExecutionResult",
    "CodeExecutor",
    "ErrorInfo",
    "ExecutionResult",
    "ExecutionTimeout",
    "ExecutorStopped",
    "FileInfo",
    "InheritedStream",
    "InvalidInput",
    "Job",
    "Kernel",
    "KernelBoxConfig",
    "KernelBoxError",
    "KernelBusy",
    "KernelDied",
    "KernelExists",
    "KernelNotFound",
    "KernelRecord",
    "Limits",
    "MissingExtra",
    "OutputItem",
    "OutputNotKept",
    "PastCell",
    "Pool",
    "StartFailed",
    "StoreFailed",
    "SyncApprovalRequest",
    "ToolError",
    "ToolEvent",
    "ToolServerFailed",
    "Variable",
    "branch",
    "checkpoint",
    "checkpoints",
    "create",
    "destroy",
    "drop",
    "execute",
    "execute_with_retry",
    "generate_mcp_sources",
    "get_or_create",
    "interrupt",
    "list_kernels",
    "promote",
    "restart",
    "rollback",
    "status",
    "stream",
    "wipe",
]
