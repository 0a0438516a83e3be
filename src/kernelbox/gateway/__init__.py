"""A gateway process with kernels, and a client for it; in the place of `ipybox.kernel_mgr`."""

from __future__ import annotations

from kernelbox.gateway._client import ExecutionError, ExecutionResult, KernelClient
from kernelbox.gateway._gateway_process import KernelGateway

__all__ = ["ExecutionError", "ExecutionResult", "KernelClient", "KernelGateway"]
