"""The configuration under the path that KernelBox 0.1 had it at."""

from __future__ import annotations

from kernelbox.base._config import KernelBoxConfig

__all__ = ["KernelBoxConfig"]
