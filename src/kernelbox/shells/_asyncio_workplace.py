"""The kernels of one server, by the names that its clients give them, and the jobs in them."""

from __future__ import annotations

import asyncio
import os

from kernelbox.base._errors import InvalidInput, KernelBoxError, KernelDied, KernelNotFound
from kernelbox.core._arguments import check_code, check_language, check_name
from kernelbox.core._executor_values import read_variables
from kernelbox.core._options import KernelOptions
from kernelbox.core.approvals._memory import Sessions
from kernelbox.host.engines._limiting import measured
from kernelbox.shells._asyncio import query
from kernelbox.shells._asyncio_jobs import Job
from kernelbox.shells._loop_connection import in_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.core._executor_values import Variable
    from kernelbox.core._kernel import Kernel
    from kernelbox.core._kernels import Kernels
    from kernelbox.host.store._record import KernelRecord, Lifetime
    from kernelbox.sandbox._sandbox_config import SandboxConfig
    from kernelbox.shells._asyncio_jobs import JobOptions
    from kernelbox.tools._toolbox import Toolbox

# Each takes memory of its own; a client that opens more has forgotten those it has.
_MOST_KERNELS = 64

# Each holds a connection to its kernel.
_MOST_RUNNING = 200

# Jobs whose results are kept: a client asks for one that has just ended, not for one of yesterday.
_MOST_JOBS = 32


class Workplace:
    """Opens kernels by name as they are needed, and runs jobs in them.

    The kernels are its own: other processes do not find them by these names, and they end with this process. With
    `shared` they are those of the home, which others find too and which stay.
    """

    def __init__(
        self,
        kernels: Kernels,
        options: JobOptions,
        toolbox: Toolbox,
        *,
        cwd: str,
        env: dict[str, str],
        shared: bool = False,
        sandbox: SandboxConfig | None = None,
        guarded: bool = False,
    ) -> None:
        self._kernels = kernels
        self._options = options
        self._toolbox = toolbox
        lifetime: Lifetime = "kernel" if shared else "process"
        self._new = KernelOptions(cwd=cwd, env=env, lifetime=lifetime, sandbox=sandbox, guarded=guarded)
        self._shared = shared
        self._suffix = "" if shared else f"-{os.urandom(4).hex()}"
        self._open: dict[str, Kernel] = {}
        self._opening: dict[str, asyncio.Future[Kernel]] = {}
        self._jobs: dict[str, Job] = {}
        self._beginning = 0  # calls whose job is not among them yet
        self._sessions = Sessions()

    def __repr__(self) -> str:
        return f"<Workplace of {len(self._open)} kernels, {len(self._jobs)} jobs>"

    # -- jobs ------------------------------------------------------------------------------------------------

    async def begin(
        self,
        name: str,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,  # noqa: ASYNC109  # it interrupts the cell
    ) -> Job:
        """Runs a cell in the kernel of a name, which is opened if it is new."""
        request = self._options.request(check_code(code), check_language(language))
        if len(self.running()) + self._beginning >= _MOST_RUNNING:
            raise KernelBoxError(f"{_MOST_RUNNING} cells run or wait already; wait for some, or cancel them")
        self._beginning += 1
        try:
            kernel = await self._find(name)
            job = await Job.begin(name, kernel, request, self._options, self._sessions, self._toolbox, timeout=timeout)
            job.start()
        finally:
            self._beginning -= 1
        self._forget_old_jobs()
        self._jobs[job.id] = job
        return job

    def job(self, job_id: str) -> Job:
        """Returns a job that runs or has ended not long ago."""
        if job_id not in self._jobs:
            raise KernelBoxError(f"there is no job {job_id[:64]!r} any more; run the code again")
        return self._jobs[job_id]

    def running(self) -> list[Job]:
        """Returns the jobs that have not come to their end."""
        return [job for job in self._jobs.values() if not job.done]

    def cancel_all(self) -> None:
        """Begins to stop every job."""
        for job in self.running():
            job.cancel()

    def note_death(self, job: Job) -> None:
        """Notes that the caller tells of a kernel that died in a job, so that the next cell gets a fresh one."""
        kernel = self._open.get(job.kernel_name)
        if kernel is not None:
            self._kernels.condition.claim_report(kernel.record)

    # -- kernels ---------------------------------------------------------------------------------------------

    async def records(self) -> list[tuple[str, KernelRecord]]:
        """Returns the kernels there are, with the names that clients know them by."""
        if self._shared:
            records = await in_thread(lambda: measured(self._kernels.all()))
            return [(record.name, record) for record in records]
        found = []
        for name, kernel in list(self._open.items()):
            record = await in_thread(self._kernels.find, kernel.record.kernel_id)
            if record is not None:
                found.append((name, record))
        records = [record for _, record in found]
        await in_thread(self._kernels.note_held, records)
        await in_thread(measured, records)
        return found

    async def variables(self, name: str, *, timeout: float = 10) -> list[Variable]:  # noqa: ASYNC109  # part of the query
        """Returns what lives in a kernel that has been opened."""
        await self._known(name)
        kernel = await self._find(name)
        try:
            content = await query(kernel, "variables", {}, timeout=timeout)
        except TimeoutError as exc:
            raise KernelBoxError(f"kernel {name!r} is busy; interrupt it, or ask again when it is idle") from exc
        except KernelDied as exc:
            await in_thread(self._kernels.condition.claim_report, kernel.record)
            raise KernelDied(name, exc.cause, "the next call starts a fresh kernel") from exc
        return read_variables(name, content)

    async def interrupt(self, name: str) -> bool:
        """Interrupts what a kernel runs; returns whether it was running anything."""
        kernel = await self._known(name)
        return await in_thread(self._kernels.interrupt, kernel.record.kernel_id)

    async def restart(self, name: str) -> None:
        """Starts a kernel's process anew; its variables are lost. Raises KernelNotFound for a name that is new.

        Tool servers that no cell is using are ended; they are started again when they are called.
        """
        kernel = await self._known(name)
        try:
            record = await in_thread(self._restart, kernel)
        except KernelNotFound:
            self._open.pop(name, None)
            raise
        self._open[name] = self._kernels.kernel(record, environment=self._new.env)
        if not self.running():
            await self._close_toolbox()

    async def close(self, name: str) -> None:
        """Ends a kernel, its child processes and its files."""
        kernel = await self._known(name)
        self._open.pop(name, None)
        await in_thread(self._kernels.destroy, kernel.record.kernel_id)

    async def stop(self) -> None:
        """Stops the jobs and ends the kernels that are our own; the warm template goes if no kernel is left."""
        self.cancel_all()
        if self._opening:
            await asyncio.wait(self._opening.values())
        if not self._shared:
            kernels, self._open = list(self._open.values()), {}
            await asyncio.gather(*(in_thread(self._kernels.destroy, each.record.kernel_id) for each in kernels))
        await asyncio.gather(*(job.stop() for job in self.running()))
        await self._close_toolbox()
        await in_thread(self._kernels.tidy)

    async def _close_toolbox(self) -> None:
        closing = self._toolbox.close()
        if closing is not None:
            await asyncio.shield(asyncio.wrap_future(closing))

    async def _known(self, name: str) -> Kernel:
        """Returns the kernel of a name that has been opened."""
        check_name(name)
        if name not in self._open:
            record = await in_thread(self._kernels.find, name) if self._shared else None
            if record is None:
                raise KernelNotFound(name)
            self._open[name] = self._kernels.kernel(record, environment=self._new.env)
        return self._open[name]

    async def _find(self, name: str) -> Kernel:
        """Returns the live kernel of a name. One that has died since is told of once, before a new one replaces it."""
        check_name(name)
        kernel = self._open.get(name)
        if kernel is not None and kernel.is_connected:
            return kernel
        if name not in self._open and len(self._open.keys() | self._opening.keys()) >= _MOST_KERNELS:
            allowed = f"{_MOST_KERNELS} kernels are open; use one of them, or close one"
            raise InvalidInput("the kernel", name, allowed)
        if name not in self._opening:
            self._opening[name] = asyncio.ensure_future(self._reopen(name))
            self._opening[name].add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening[name])

    async def _reopen(self, name: str) -> Kernel:
        """Opens a kernel, in a task of its own: a call that is cancelled meanwhile may not be the only one."""
        try:
            self._open[name] = await in_thread(self._open_kernel, name)
        finally:
            del self._opening[name]
        return self._open[name]

    def _open_kernel(self, name: str) -> Kernel:
        known = self._open.get(name)
        if known is not None:
            record = self._kernels.settled(known.record.kernel_id)
            if record is not None and not record.alive and self._kernels.condition.claim_report(record):
                raise KernelBoxError(
                    f"kernel {name!r} has died since it was last used: {record.death}. Its variables are lost, and "
                    "nothing was run; the next call starts a fresh kernel"
                )
        found = self._kernels.get_or_create(f"{name}{self._suffix}", self._new, as_it_is=True)
        return self._kernels.kernel(found, environment=self._new.env)

    def _restart(self, kernel: Kernel) -> KernelRecord:
        return self._kernels.restart(kernel.record.kernel_id, environment=self._new.env)

    def _forget_old_jobs(self) -> None:
        ended = [job_id for job_id, job in self._jobs.items() if job.done]
        for job_id in ended[: max(0, len(ended) - _MOST_JOBS)]:
            del self._jobs[job_id]
