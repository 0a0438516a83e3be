"""The configuration and its defaults at their import path of KernelBox 0.1."""

from __future__ import annotations

from pathlib import Path

from kernelbox.base._config import KernelBoxConfig

_defaults = KernelBoxConfig()

DEFAULT_MAX_RETRIES = _defaults.max_retries
DEFAULT_KERNEL_IDLE_TIMEOUT = _defaults.kernel_idle_timeout
DEFAULT_EXECUTION_TIMEOUT = _defaults.execution_timeout
DEFAULT_OUTPUT_CHAR_LIMIT = _defaults.output_char_limit
DEFAULT_STORE_BACKEND = _defaults.store_backend
DEFAULT_KERNEL_TYPE = _defaults.kernel_type

__all__ = [
    "DEFAULT_EXECUTION_TIMEOUT",
    "DEFAULT_KERNEL_IDLE_TIMEOUT",
    "DEFAULT_KERNEL_TYPE",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_OUTPUT_CHAR_LIMIT",
    "DEFAULT_STORE_BACKEND",
    "KernelBoxConfig",
    "default_registry_path",
    "default_runtime_dir",
]


def default_registry_path() -> Path:
    """Returns where the registry is."""
    return Path(KernelBoxConfig.from_env().registry_path)


def default_runtime_dir() -> Path:
    """Returns where the kernels' files are."""
    return Path(KernelBoxConfig.from_env().runtime_dir)
