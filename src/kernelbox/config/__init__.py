"""The configuration at its import path of KernelBox 0.1."""

from __future__ import annotations

from kernelbox.base._config import KernelBoxConfig

__all__ = ["KernelBoxConfig"]
