"""Pools: several private kernels that share out a batch of cells, for blocking and asynchronous code."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.api._kernel import Kernel
from kernelbox.base._errors import InvalidInput, KernelBoxError
from kernelbox.base._unique_objects import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from typing import Any, Self

    from kernelbox.api._job import Job
    from kernelbox.core._arguments import LanguageName
    from kernelbox.wire._results import ExecutionResult


class Pool(Handle):
    """`size` private kernels, opened when they are first needed; `options` are those of `Kernel`.

    The kernels end with the `with` block. Each cell runs in the next free kernel, so cells of one batch share no
    variables that they could rely on.
    """

    def __init__(self, size: int, **options: Any) -> None:
        self.size = _check_size(size)
        self._options = _check_options(options)
        self._made: list[Kernel] = []
        self._free: queue.SimpleQueue[Kernel | None] = queue.SimpleQueue()
        self._fill()

    def __repr__(self) -> str:
        return f"<Pool of {self.size}, {len(self._made)} open>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def map(
        self, codes: Iterable[str], *, language: LanguageName = "python", timeout: float | None = None
    ) -> Iterator[ExecutionResult]:
        """Runs cells side by side and yields their results in the order of the cells.

        A result comes as soon as it and those before it are there. Leaving the loop interrupts the cells that are
        running.
        """
        threads = ThreadPoolExecutor(self.size, thread_name_prefix="kernelbox-pool")
        jobs: set[Job] = set()
        left = threading.Event()
        try:
            running = [threads.submit(self._run, code, language, timeout, jobs, left) for code in codes]
            for future in running:
                yield future.result()
        finally:
            left.set()
            threads.shutdown(wait=False, cancel_futures=True)
            for job in list(jobs):
                with contextlib.suppress(KernelBoxError):  # no one waits for its result
                    job.cancel()
            threads.shutdown()

    def close(self) -> None:
        """Destroys the kernels; the pool can be used again, with new ones."""
        made, self._made = self._made, []
        self._free = queue.SimpleQueue()
        self._fill()
        for kernel in made:
            kernel.destroy()

    def _fill(self) -> None:
        for _ in range(self.size):
            self._free.put(None)

    def _run(
        self, code: str, language: LanguageName, timeout: float | None, jobs: set[Job], left: threading.Event
    ) -> ExecutionResult:
        free = self._free
        kernel = free.get()
        try:
            if kernel is None:
                kernel = Kernel(**self._options)
                self._made.append(kernel)
            job = kernel.submit(code, language=language, timeout=timeout)
            jobs.add(job)
            try:
                return job.cancel() if left.is_set() else job.result()
            finally:
                jobs.discard(job)
        finally:
            free.put(kernel)


class AsyncPool(Handle):
    """The same for event loops: `async with AsyncPool(8) as pool`, `async for result in pool.map(codes)`."""

    def __init__(self, size: int, **options: Any) -> None:
        self.size = _check_size(size)
        self._options = _check_options(options)
        self._fill()

    def __repr__(self) -> str:
        return f"<AsyncPool of {self.size}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def map(
        self,
        codes: Iterable[str],
        *,
        language: LanguageName = "python",
        timeout: float | None = None,  # noqa: ASYNC109  # it interrupts the cell and keeps what it wrote
    ) -> AsyncIterator[ExecutionResult]:
        """Runs cells side by side and yields their results in the order of the cells.

        Leaving the loop interrupts the cells that are running.
        """
        running = [asyncio.ensure_future(self._run(code, language, timeout)) for code in codes]
        try:
            for task in running:
                yield await task
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def close(self) -> None:
        """Destroys the kernels; the pool can be used again, with new ones."""
        kernels = self._kernels
        self._fill()
        await asyncio.gather(*(kernel.stop() for kernel in kernels))

    def _fill(self) -> None:
        self._kernels = [AsyncKernel(**self._options) for _ in range(self.size)]
        self._free: asyncio.LifoQueue[AsyncKernel] = asyncio.LifoQueue()
        for kernel in self._kernels:
            self._free.put_nowait(kernel)

    async def _run(self, code: str, language: LanguageName, timeout: float | None) -> ExecutionResult:  # noqa: ASYNC109  # as above
        free = self._free
        kernel = await free.get()
        try:
            return await kernel.execute(code, language=language, timeout=timeout)
        finally:
            free.put_nowait(kernel)


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    if options.get("name") is not None:
        raise InvalidInput("name", options["name"], "the kernels of a pool are private; leave it out")
    AsyncKernel(**options)  # it opens nothing, and rejects what a kernel cannot use
    return options


def _check_size(size: object) -> int:
    if type(size) is not int or size < 1:
        raise InvalidInput("size", size, "use a whole number of kernels, at least 1")
    return size
