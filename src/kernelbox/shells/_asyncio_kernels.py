"""AsyncKernels: the kernels of a home on an event loop. File access and waiting happen in threads.

All that runs code on an event loop uses it: CodeExecutor, the HTTP service, the MCP server and front ends. It keeps no
state but handles, and uses a handle without looking at files only while a connection shows that the kernel lives. So
any number of processes on the same home see the same kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import os
from weakref import WeakValueDictionary

from kernelbox.base._errors import KernelBusy, KernelDied, KernelExists, KernelNotFound, LimitReached
from kernelbox.base._limits import check_limits
from kernelbox.base._unique_objects import Handle
from kernelbox.core import _every_kernel
from kernelbox.core._arguments import check_key, check_name
from kernelbox.core._executor_values import read_variables
from kernelbox.core._name_terms import retag
from kernelbox.core._options import NO_OPTIONS, KernelOptions
from kernelbox.core.approvals._memory import Sessions
from kernelbox.host.engines._limiting import measured
from kernelbox.host.store._record import without_reasons
from kernelbox.shells._asyncio_cell import AsyncCell
from kernelbox.shells._asyncio_connection import connect, in_thread
from kernelbox.shells._asyncio_run import query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from typing import Any, TypeVar

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.core._cell_options import CellOptions
    from kernelbox.core._executor_values import Variable
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core._kernels import Kernels
    from kernelbox.host.store._record import KernelRecord
    from kernelbox.shells._asyncio_watch import Lent
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import ExecutionResult, SetBack

    T = TypeVar("T")

# Handles that are kept; those of kernels that others have destroyed are among them.
_MOST_HANDLES = 10_000

# Seconds after which a caller may try again to open a kernel where there are too many.
_FULL_PATIENCE = 10

# Kernels that are started at once. Each holds a thread, for a minute if its start-up code takes that long, and others
# need threads too.
_MOST_STARTING = 16

# Seconds that a kernel has to answer a question; one that runs a cell answers after it.
QUERY_PATIENCE = 10.0


class AsyncKernels(Handle):
    """Finds, opens, uses, restarts, asks, interrupts and destroys kernels without blocking the loop."""

    def __init__(
        self,
        kernels: Kernels,
        new: KernelOptions,
        toolbox: Toolbox,
        *,
        advice: str,
        most: int = 0,
        describe: Callable[[Exception], str] | None = None,
    ) -> None:
        """`new` is what kernels are opened with. If it has a sandbox, kernels that have another or none are rejected.

        `toolbox` has the tool servers for cells. `advice` is what a caller can do about a kernel that has died. `most`
        is how many kernels the home may have before no more are opened, 0 for any number. `describe` is for callers
        elsewhere: it says why a kernel could not be started, and records do not.
        """
        self._kernels = kernels
        self._new = new
        self._toolbox = toolbox
        self._sessions = Sessions()
        self._advice = advice
        self._most = most
        self._describe = describe
        self._handles: dict[str, KernelHandle] = {}
        self._opening: dict[str, asyncio.Task[KernelHandle]] = {}
        self._starting = asyncio.Semaphore(_MOST_STARTING)
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def config(self) -> KernelBoxConfig:
        return self._kernels.config

    def within(self, folder: str) -> AsyncKernels:
        """Returns the same kernels, of which new ones work in a folder of the directory, made if it is missing."""
        inner, cwd = copy.copy(self), os.path.join(self._new.cwd or "", folder)
        os.makedirs(cwd, exist_ok=True)
        inner._new = dataclasses.replace(self._new, cwd=cwd)
        return inner

    def apart(self) -> AsyncKernels:
        """Returns the same kernels, whose cells share no remembered approvals with those of this one."""
        other = copy.copy(self)
        other._sessions = Sessions()
        return other

    # -- finding ---------------------------------------------------------------------------------------------

    async def all(self) -> list[KernelRecord]:
        """Returns every kernel, oldest first, as it is now."""
        return [self._shown(record) for record in await in_thread(_every_kernel.list_all, self._kernels)]

    async def measured(self, records: list[KernelRecord]) -> list[KernelRecord]:
        """Fills in what each live kernel uses."""
        return await in_thread(measured, records)

    async def find(self, key: str) -> KernelRecord | None:
        """Returns the record of an id, name or session name, as it is now."""
        found = await in_thread(self._kernels.find, check_key(key))
        return None if found is None else self._shown(found)

    async def get(self, key: str) -> KernelRecord:
        """Like `find`; raises KernelNotFound."""
        return self._shown(await in_thread(self._kernels.get, check_key(key)))

    async def kernel(self, key: str) -> KernelHandle:
        """Returns a handle to an existing kernel, alive or dead; raises KernelNotFound."""
        return self._connected(key) or self._keep(key, await in_thread(self._settled, check_key(key)))

    async def follow(self, kernel: KernelHandle) -> KernelHandle:
        """Returns a handle to a kernel as it is now: another client may have restarted it, or destroyed it."""
        if kernel.is_connected:
            return kernel
        key = kernel.record.kernel_id
        found = await in_thread(self._kernels.find, key)
        return kernel if found is None else self._keep(key, found)

    def handle(self, record: KernelRecord) -> KernelHandle:
        """Returns a handle to the kernel of a record."""
        given = self._kernels.environment_given(record.kernel_id)
        environment = self._new.env if given is None else given
        return self._kernels.kernel(self._shown(record), environment=environment, describe=self._describe or str)

    async def answers(self, record: KernelRecord) -> bool:
        """Asks a kernel for a sign of life; one that runs a cell is taken at its word."""
        return record.alive and await in_thread(self.handle(record).answers)

    # -- opening ---------------------------------------------------------------------------------------------

    async def create(self, name: str | None = None, wanted: KernelOptions = NO_OPTIONS) -> KernelRecord:
        """Opens a kernel under a name that no live kernel has, a new one if none is given; raises KernelExists.

        A caller that is cancelled meanwhile leaves no kernel.
        """
        if name is None:
            name = self.new_name() if wanted.session_name is None else wanted.session_name
        async with self._starting:
            record = await in_thread(self._create, check_name(name), self._options(wanted), undo=self._undo)
        return self._shown(record)

    @staticmethod
    def new_name() -> str:
        """Returns a name that no kernel has."""
        return f"kernel-{os.urandom(6).hex()}"

    async def open(self, name: str, wanted: KernelOptions = NO_OPTIONS) -> KernelRecord:
        """Returns the live kernel of a name; opens one, as it is wanted, if there is none.

        Raises KernelExists if the live one has other limits, another sandbox or no guard.
        """
        return self._shown(await self._in_turn_unless_live(self._open, check_name(name), self._options(wanted)))

    async def use(self, name: str) -> KernelHandle:
        """Returns the kernel for a cell that is sent to a name, as `Kernels.use` does.

        Callers of the same name wait for one start, which goes on when any of them is cancelled.
        """
        if (known := self._connected(name)) is not None:
            return known
        opening = self._opening.get(name)
        if opening is None:
            opening = self._opening[name] = asyncio.ensure_future(self._begin_use(check_name(name)))
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # no caller may be left
        return await asyncio.shield(opening)

    async def _begin_use(self, name: str) -> KernelHandle:
        try:
            return self._keep(name, await self._in_turn_unless_live(self._use, name, self._new))
        finally:
            del self._opening[name]

    async def until_opened(self) -> None:
        """Waits for the kernels that are being started for `use`."""
        if self._opening:
            await asyncio.wait(self._opening.values())

    async def _in_turn_unless_live(
        self, function: Callable[[str, KernelOptions], KernelRecord], name: str, options: KernelOptions
    ) -> KernelRecord:
        """Runs a function that may start a kernel, when it is its turn; a live kernel need not wait for that."""
        if self._starting.locked():
            found = await in_thread(self._kernels.find, name)
            if found is not None and found.alive:
                return await in_thread(function, name, options)
        async with self._starting:
            return await in_thread(function, name, options)

    @contextlib.asynccontextmanager
    async def alone(self, about: str) -> AsyncGenerator[None]:
        """Lets one task at a time, of all processes on the home, do what this is about."""
        async with self._alone.setdefault(about, asyncio.Lock()):
            held = contextlib.ExitStack()
            await in_thread(held.enter_context, self._kernels.store.locking(about), undo=lambda _: held.close())
            with held:
                yield

    async def retag(self, kernel_id: str, changes: Mapping[str, str | None]) -> KernelRecord:
        """Sets tags of a kernel, and removes those that are None; raises KernelNotFound."""
        return self._shown(await in_thread(retag, self._kernels, kernel_id, changes))

    # -- running and asking ----------------------------------------------------------------------------------

    async def begin(
        self, kernel: KernelHandle, request: Execute, options: CellOptions, *, lent: Lent | None = None
    ) -> AsyncCell:
        """Sends a cell to a kernel, on a lent connection if there is one."""
        return await AsyncCell.begin(kernel, request, options, self._sessions, self._toolbox, lent=lent)

    async def query(
        self,
        kernel: KernelHandle,
        what: str,
        args: Mapping[str, Any],
        *,
        timeout: float | None,  # noqa: ASYNC109  # part of the query
    ) -> dict[str, Any]:
        """Asks a kernel something between cells; raises TimeoutError, and KernelDied if it is dead."""
        try:
            return await query(kernel, what, dict(args), timeout=timeout)
        except KernelDied as exc:
            raise KernelDied(kernel.name, exc.cause, exc.advice or self._advice) from exc

    async def ask(self, key: str, what: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Like `query`, by id or name; raises KernelBusy if a cell runs in the kernel."""
        kernel = await self.kernel(key)
        try:
            return await self.query(kernel, what, args, timeout=QUERY_PATIENCE)
        except TimeoutError as exc:
            raise KernelBusy(kernel.name) from exc

    async def variables(self, key: str) -> list[Variable]:
        """Returns the variables of a kernel."""
        return read_variables(key, await self.ask(key, "variables", {}))

    async def look_back(self, key: str, read: Callable[[KernelHandle], T]) -> T:
        """Calls a function in a thread with a handle to a kernel as it is now, alive or dead: to read its history."""
        kernel_id = (await self.kernel(key)).record.kernel_id
        return await in_thread(lambda: read(self.handle(self._kernels.get(kernel_id))))

    # -- reporting deaths ------------------------------------------------------------------------------------

    async def note_death(self, kernel: KernelHandle) -> None:
        """Notes that a death has been reported: the next use of the name opens a fresh kernel."""
        await in_thread(kernel.note_death)

    async def report_death(self, kernel: KernelHandle, result: ExecutionResult) -> None:
        """Notes that a result reports a kernel's death, and adds what the caller can do."""
        await in_thread(kernel.report_death, result, self._advice)

    async def dead_result(self, kernel: KernelHandle) -> ExecutionResult:
        """Returns the result of a cell that was sent to a dead kernel, and notes that this reports the death."""
        return await in_thread(kernel.dead_result, self._advice)

    async def come_back(self, kernel: KernelHandle) -> SetBack | None:
        """Sets a dead kernel back to its last checkpoint; None if it has none."""
        return await in_thread(kernel.come_back)

    # -- interrupting and ending -----------------------------------------------------------------------------

    async def interrupt(self, key: str) -> bool:
        """Interrupts what holds a kernel; returns whether anything did. Raises KernelNotFound."""
        return await in_thread(self._kernels.interrupt, check_key(key))

    async def interrupt_execution(self, kernel_id: str, execution_id: str) -> None:
        """Interrupts one execution of a kernel, also one of another process; one that waits for its turn never runs."""
        kernel = await self.kernel(kernel_id)
        with contextlib.suppress(OSError):  # it has ended meanwhile
            connection = await connect(kernel)
            connection.interrupt(execution_id)
            kernel.release(connection)

    async def restart(self, key: str) -> KernelRecord:
        """Starts a new process for a kernel, under the same name and id; raises KernelNotFound."""
        async with self._starting:
            return self._shown(await in_thread(self._restart, check_key(key)))

    async def destroy(self, key: str) -> bool:
        """Ends a kernel, its children and its files; returns whether there was one."""
        return await self.begin_destroy(key)

    def begin_destroy(self, key: str) -> asyncio.Future[bool]:
        """Begins to destroy a kernel at once, also in a loop that runs no more tasks because it ends."""
        return asyncio.get_running_loop().run_in_executor(None, self._kernels.destroy, check_key(key))

    async def wipe(self) -> list[str]:
        """Destroys every kernel; returns their ids."""
        return await in_thread(_every_kernel.wipe, self._kernels)

    async def end_own(self) -> None:
        """Destroys the kernels that end with this process, rather than have them end after it."""
        if self._new.lifetime != "process":
            return
        own = [record for record in await self.all() if record.owner_pid == os.getpid()]
        await asyncio.gather(*(self.destroy(record.kernel_id) for record in own))
        if own:
            await self.tidy()

    async def tidy(self) -> None:
        """Ends the warm template if no kernel is left."""
        await in_thread(_every_kernel.tidy, self._kernels)

    async def close_tools(self) -> None:
        """Ends the sessions with tool servers; the next call of a tool opens others."""
        if (closing := self._toolbox.close()) is not None:
            await asyncio.shield(asyncio.wrap_future(closing))

    # -- in a thread -----------------------------------------------------------------------------------------

    def _settled(self, key: str) -> KernelRecord:
        record = self._kernels.get(key)
        settled = record if record.alive else self._kernels.settled(record.kernel_id)
        if settled is None:
            raise KernelNotFound(key)
        if settled.alive and (differences := self._new.sandbox_differences(settled)):
            raise KernelExists(settled.name, differences)
        return settled

    def _create(self, name: str, options: KernelOptions) -> KernelRecord:
        self._require_room(None)
        return self._kernels.create(name, options, as_it_is=True)  # the directory is this face's own, for new names

    def _use(self, name: str, options: KernelOptions) -> KernelRecord:
        self._require_room(name)
        return self._kernels.use(name, options)

    def _require_room(self, name: str | None) -> None:
        """Raises LimitReached if there are as many kernels as there may be, and none of them has the name."""
        full = self._most and self._kernels.store.count() >= self._most
        if full and (name is None or self._kernels.find(name) is None):
            sentence = f"there are {self._most:,} kernels, which is the limit; destroy one, or use one of them"
            raise LimitReached(sentence, of_server=True, retry_after=_FULL_PATIENCE)

    def _open(self, name: str, options: KernelOptions) -> KernelRecord:
        self._require_room(name)
        return self._kernels.get_or_create(name, options, as_it_is=True)

    def _restart(self, key: str) -> KernelRecord:
        record = self._kernels.get(key)
        return self._kernels.restart(record.kernel_id, environment=self.handle(record).environment)

    def _undo(self, record: KernelRecord) -> None:
        self._kernels.destroy(record.kernel_id)

    # -- handles ---------------------------------------------------------------------------------------------

    def _options(self, wanted: KernelOptions) -> KernelOptions:
        """Returns what a kernel is opened with. A caller may ask for less than the configured limits, not for more."""
        limits = check_limits(wanted.limits)
        if limits is not None:
            limits.require_within(self.config.limits)
        return dataclasses.replace(
            self._new,
            session_name=wanted.session_name,
            tags=wanted.tags,
            kernel_type=wanted.kernel_type,
            env={**(self._new.env or {}), **wanted.env} if wanted.env else self._new.env,
            limits=self._new.limits if limits is None else limits,
            python=self._new.python if wanted.python is None else wanted.python,
            requirements=self._new.requirements if wanted.requirements is None else wanted.requirements,
        )

    def _shown(self, record: KernelRecord) -> KernelRecord:
        return record if self._describe is None else without_reasons(record)

    def _connected(self, key: str) -> KernelHandle | None:
        """Returns the handle that is known by an id or a name, if a connection shows that its kernel lives."""
        known = self._handles.get(key)
        return known if known is not None and known.is_connected else None

    def _keep(self, key: str, record: KernelRecord) -> KernelHandle:
        if len(self._handles) >= _MOST_HANDLES:
            self._handles.clear()
        handle = self._handles[key] = self._handles[record.kernel_id] = self.handle(record)
        return handle
