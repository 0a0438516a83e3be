"""The kernels that the environment's configuration leads to, shared by the faces of this process."""

from __future__ import annotations

from kernelbox.base._config import KernelBoxConfig
from kernelbox.core._kernels import Kernels
from kernelbox.shells._blocking_run import run

_kernels: dict[KernelBoxConfig, Kernels] = {}
_latest: Kernels | None = None


def kernels() -> Kernels:
    """Returns the kernels that the environment's configuration leads to."""
    global _latest
    config = KernelBoxConfig.from_env()
    if _latest is None or _latest.config is not config:  # the same variables give the same object
        if config not in _kernels:
            _kernels[config] = Kernels(config, run)
        _latest = _kernels[config]
    return _latest
