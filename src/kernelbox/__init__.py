"""Persistent, named Python kernels for AI agents."""

from __future__ import annotations

__version__ = "0.2.0"

# Where each public name lives; a module is imported when one of its names is first used.
_HOMES = {
    "AttemptSnapshot": "kernelbox.wire._results",
    "ErrorInfo": "kernelbox.wire._results",
    "ExecutionResult": "kernelbox.wire._results",
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
    "AttemptSnapshot",
    "ErrorInfo",
    "ExecutionResult",
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
    from kernelbox._config import KernelBoxConfig
    from kernelbox._errors import (
        InvalidInput,
        KernelBoxError,
        KernelDied,
        KernelExists,
        KernelNotFound,
        StartFailed,
        StoreFailed,
    )
    from kernelbox.host._record import KernelRecord
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
