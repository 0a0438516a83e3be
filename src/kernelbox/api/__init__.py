"""The Python faces: the synchronous functions and the asynchronous CodeExecutor. No logic of their own."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.api._sync import destroy, execute, execute_with_retry, get_or_create

# What KernelBox 0.1 had at this path, loaded when it is used: the command line imports this package and needs little.
__all__ = ["destroy", "execute", "execute_with_retry", "get_or_create"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("kernelbox.api._sync"), name)
