"""The kernels of one server, by the names that its clients give them, and the jobs in them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os

from kernelbox.base._errors import InvalidInput, KernelBoxError, KernelBusy, KernelDied, KernelNotFound
from kernelbox.core._arguments import check_language, check_name
from kernelbox.core._executor_values import read_variables
from kernelbox.shells._asyncio_cell_job import CellJob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._executor_values import Variable
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core._options import KernelOptions
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.shells._asyncio_kernels import AsyncKernels
    from kernelbox.wire._results import ExecutionResult

    Noted = Callable[[KernelRecord, str], AbstractContextManager[Callable[[ExecutionResult], None]]]

# Each takes memory of its own; a client that opens more has forgotten those it has.
_MOST_KERNELS = 64

# Each holds a connection to its kernel.
_MOST_RUNNING = 200

# Jobs whose results are kept: a client asks for one that has just ended, not for one of yesterday.
_MOST_JOBS = 32

# What a client does when a kernel has died.
ADVICE = "the next call starts a fresh kernel"


class Workplace:
    """Opens kernels by name as they are needed, and runs jobs in them.

    The kernels are its own: other processes do not find them by these names, and they end with this process. With
    `shared` they are those of the home, which others find too and which stay.
    """

    def __init__(
        self,
        kernels: AsyncKernels,
        cells: CellOptions,
        *,
        shared: bool = False,
        prefix: str = "",
        noted: Noted | None = None,
    ) -> None:
        """`cells` is what every cell is run with. `prefix` begins the names of the kernels in the home.

        `noted` holds a place for a cell in a kernel, or raises why there is none; the function takes the result.
        """
        self._kernels = kernels
        self._cells = cells
        self._shared = shared
        self._prefix = prefix
        self._noted: Noted = noted or note_nothing
        self._suffix = "" if shared else f"-{os.urandom(4).hex()}"
        self._names: dict[str, None] = {}  # those used so far, in order
        self._jobs: dict[str, CellJob] = {}
        self._beginning = 0  # calls whose job is not among them yet

    def __repr__(self) -> str:
        return f"<Workplace of {len(self._names)} kernels, {len(self._jobs)} jobs>"

    # -- jobs ------------------------------------------------------------------------------------------------

    async def begin(
        self,
        name: str,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,  # noqa: ASYNC109  # it interrupts the cell
    ) -> CellJob:
        """Runs a cell in the kernel of a name, which is opened if it is new."""
        options = dataclasses.replace(self._cells, language=check_language(language), timeout=timeout)
        request = options.request(code)
        if len(self.running()) + self._beginning >= _MOST_RUNNING:
            raise KernelBoxError(f"{_MOST_RUNNING} cells run or wait already; wait for some, or cancel them")
        self._beginning += 1
        try:
            kernel = await self._use(name)
            with contextlib.ExitStack() as place:
                note = place.enter_context(self._noted(kernel.record, options.language))
                cell = await self._kernels.begin(kernel, request, options)
                job = CellJob(cell, functools.partial(_give_back, place.pop_all(), note))
        finally:
            self._beginning -= 1
        self._forget_old_jobs()
        self._jobs[job.id] = job
        return job

    def job(self, job_id: str) -> CellJob:
        """Returns a job that runs or has ended not long ago."""
        if job_id not in self._jobs:
            raise KernelBoxError(f"there is no job {job_id[:64]!r} any more; run the code again")
        return self._jobs[job_id]

    def running(self) -> list[CellJob]:
        """Returns the jobs that have not ended."""
        return [job for job in self._jobs.values() if not job.done]

    def cancel_all(self) -> None:
        """Begins to stop every job."""
        for job in self.running():
            job.cancel()

    async def report_death(self, job: CellJob) -> None:
        """Notes that a kernel's death has been reported, so that the next cell gets a fresh one."""
        await self._kernels.note_death(job.cell.kernel)

    # -- kernels ---------------------------------------------------------------------------------------------

    async def records(self) -> list[tuple[str, KernelRecord]]:
        """Returns the kernels, with the names that clients know them by and what each uses."""
        before, after = self._prefix, self._suffix
        records = [
            record
            for record in await self._kernels.all()
            if record.name.startswith(before) and record.name.endswith(after)
        ]
        await self._kernels.measured(records)
        return [(record.name.removeprefix(before).removesuffix(after), record) for record in records]

    async def open(self, name: str, wanted: KernelOptions) -> KernelRecord:
        """Opens the kernel of a name as it is wanted; raises KernelExists if a live one differs."""
        with self._counted(name):
            return await self._kernels.open(self._full(name), wanted)

    async def variables(self, name: str, *, timeout: float = 10) -> list[Variable]:  # noqa: ASYNC109  # part of the query
        """Returns the variables of a kernel that has been opened."""
        with _called(name):
            await self._kernels.get(self._full(name))
        kernel = await self._use(name)
        try:
            content = await self._kernels.query(kernel, "variables", {}, timeout=timeout)
        except TimeoutError as exc:
            raise KernelBusy(name) from exc
        except KernelDied as exc:
            await self._kernels.note_death(kernel)
            raise KernelDied(name, exc.cause, exc.advice or ADVICE) from exc
        return read_variables(name, content)

    async def interrupt(self, name: str) -> bool:
        """Interrupts what a kernel runs; returns whether it was running anything."""
        with _called(name):
            return await self._kernels.interrupt(self._full(name))

    async def restart(self, name: str) -> None:
        """Starts a new process for a kernel; its variables are lost. Raises KernelNotFound for a new name.

        Tool servers that no cell is using are ended; they are started again when they are called.
        """
        with _called(name):
            await self._kernels.restart(self._full(name))
        if not self.running():
            await self._kernels.close_tools()

    async def close(self, name: str) -> None:
        """Ends a kernel, its child processes and its files."""
        self._names.pop(name, None)
        if not await self._kernels.destroy(self._full(name)):
            raise KernelNotFound(name)

    async def stop(self) -> None:
        """Stops the jobs and ends the kernels that are our own; the warm template goes if no kernel is left."""
        self.cancel_all()
        await self._kernels.until_opened()
        if not self._shared:
            names, self._names = self._names, {}
            await asyncio.gather(*(self._kernels.destroy(self._full(name)) for name in names))
        await asyncio.gather(*(job.stop() for job in self.running()))
        await self._kernels.close_tools()
        await self._kernels.tidy()

    def _full(self, name: str) -> str:
        """Returns the name that a kernel has in the home."""
        return f"{self._prefix}{check_name(name)}{self._suffix}"

    async def _use(self, name: str) -> KernelHandle:
        """Returns the live kernel of a name. If one has died since it was last used, that is reported once."""
        with self._counted(name):
            kernel = await self._kernels.use(self._full(name))
        if kernel.is_dead:
            set_back = await self._kernels.come_back(kernel)
            then = f". Its variables are lost, and nothing was run; {ADVICE}"
            if set_back is not None:
                then = f"; {set_back}; nothing was run"
            raise KernelBoxError(f"kernel {name!r} has died since it was last used: {kernel.record.death}{then}")
        return kernel

    @contextlib.contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        """Counts the kernel of a name from before it is opened, unless that fails."""
        is_new = name not in self._names
        if is_new and len(self._names) >= _MOST_KERNELS:
            allowed = f"{_MOST_KERNELS} kernels are open; use one of them, or close one"
            raise InvalidInput("the kernel", name, allowed)
        self._names[name] = None
        try:
            yield
        except Exception:
            if is_new:
                self._names.pop(name, None)
            raise

    def _forget_old_jobs(self) -> None:
        ended = [job_id for job_id, job in self._jobs.items() if job.done]
        for job_id in ended[: max(0, len(ended) - _MOST_JOBS)]:
            del self._jobs[job_id]


@contextlib.contextmanager
def _called(name: str) -> Iterator[None]:
    """Reports a missing kernel under the name that its client gave."""
    try:
        yield
    except KernelNotFound:
        raise KernelNotFound(name) from None


@contextlib.contextmanager
def note_nothing(record: KernelRecord, language: str) -> Iterator[Callable[[ExecutionResult], None]]:
    """Notes nothing about a cell."""
    yield lambda result: None


def _give_back(place: contextlib.ExitStack, note: Callable[[ExecutionResult], None], job: CellJob) -> None:
    """Gives back the place of a job that has ended, with its result if it has one."""
    with place, contextlib.suppress(Exception, asyncio.CancelledError):
        note(job.result)
