"""The errors under the path, and one of them under the name, that KernelBox 0.1 had them at."""

from __future__ import annotations

from kernelbox.base._errors import KernelBoxError, KernelNotFound
from kernelbox.base._errors import KernelExists as KernelAlreadyExists

__all__ = ["KernelAlreadyExists", "KernelBoxError", "KernelNotFound"]
