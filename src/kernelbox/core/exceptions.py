"""The errors at their import path of KernelBox 0.1, one of them under its old name."""

from __future__ import annotations

from kernelbox.base._errors import KernelBoxError, KernelNotFound
from kernelbox.base._errors import KernelExists as KernelAlreadyExists

__all__ = ["KernelAlreadyExists", "KernelBoxError", "KernelNotFound"]
