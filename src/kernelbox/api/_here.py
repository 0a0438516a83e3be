"""The kernels that the environment's configuration leads to, shared by the faces of this process."""

from __future__ import annotations

from kernelbox.base._config import KernelBoxConfig
from kernelbox.core._kernels import Kernels
from kernelbox.shells import _blocking

_kernels: dict[KernelBoxConfig, Kernels] = {}


def kernels() -> Kernels:
    """Returns the kernels that the environment's configuration leads to."""
    config = KernelBoxConfig.from_env()
    if config not in _kernels:
        _kernels[config] = Kernels(config, _blocking.run)
    return _kernels[config]
