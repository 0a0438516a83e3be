"""The objects for event loops under the names of the blocking ones: `from kernelbox.aio import Kernel`."""

from __future__ import annotations

from kernelbox.api._async_kernel import AsyncKernel as Kernel
from kernelbox.api._job import AsyncJob as Job
from kernelbox.api._kernel_pool import AsyncPool as Pool

__all__ = ["Job", "Kernel", "Pool"]
