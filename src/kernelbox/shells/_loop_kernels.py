"""The kernels of a home on an event loop, by id, name or session name: what looks at files or waits runs in a thread.

What it tells of a kernel may go to who is elsewhere: its records do not say why the host could not start or reach one.
It keeps no state of its own but handles, and a handle is used without a look at the files only while a connection shows
that its kernel lives. So any number of processes on the same home see the same kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
from weakref import WeakValueDictionary

from kernelbox.base._errors import KernelBusy, KernelExists, KernelNotFound, LimitReached
from kernelbox.base._limits import check_limits
from kernelbox.core._arguments import check_key, check_name
from kernelbox.core._executor_values import read_variables
from kernelbox.core._options import KernelOptions
from kernelbox.core._tagging import retag
from kernelbox.host.engines._limiting import measured
from kernelbox.host.store._record import without_reasons
from kernelbox.shells._asyncio import query
from kernelbox.shells._loop_connection import connect, in_thread
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from typing import Any, TypeVar

    from kernelbox.base._config import KernelBoxConfig
    from kernelbox.core._executor_values import Variable
    from kernelbox.core._kernel import Kernel
    from kernelbox.core._kernels import Kernels
    from kernelbox.host.store._record import KernelRecord, Lifetime
    from kernelbox.sandbox._sandbox_config import SandboxConfig

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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller may ask of a new kernel; all else is the process's that opens it.

    `env` are variables that it gets beside the others, as long as this process restarts it.
    """

    session_name: str | None = None
    tags: Mapping[str, str] | None = None
    kernel_type: str | None = None
    env: Mapping[str, str] | None = None
    limits: Mapping[str, object] | None = None


_NOTHING = Wanted()


class LoopKernels:
    """Finds, opens, asks, interrupts and ends kernels without blocking the loop.

    New processes get the directory and the environment that it was made with, that of this process only for None.
    """

    def __init__(
        self,
        kernels: Kernels,
        *,
        cwd: str,
        env: dict[str, str] | None,
        most: int = 0,
        lifetime: Lifetime = "kernel",
        sandbox: SandboxConfig | None = None,
        describe: Callable[[Exception], str] = str,
    ) -> None:
        """`most` is how many kernels there may be before none is opened any more, 0 for any number.

        With `sandbox` no kernel is used that has not that one. `describe` is the handles'.
        """
        self._describe = describe
        self._sandbox = sandbox
        self._lifetime = lifetime
        self._kernels = kernels
        self._cwd = cwd
        self._env = env
        self._most = most
        self._handles: dict[str, Kernel] = {}
        self._starting = asyncio.Semaphore(_MOST_STARTING)
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<LoopKernels of {self._kernels!r}>"

    @property
    def config(self) -> KernelBoxConfig:
        return self._kernels.config

    def within(self, folder: str) -> LoopKernels:
        """Returns the same kernels, of which new ones work in a folder of the directory, made if it is missing."""
        inner = copy.copy(self)
        inner._cwd = os.path.join(self._cwd, folder)
        os.makedirs(inner._cwd, exist_ok=True)
        return inner

    # -- finding ---------------------------------------------------------------------------------------------

    async def all(self) -> list[KernelRecord]:
        """Returns every kernel, oldest first, as it is now."""
        return [without_reasons(record) for record in await in_thread(self._kernels.all)]

    async def measured(self, records: list[KernelRecord]) -> list[KernelRecord]:
        """Fills in what each live kernel uses."""
        return await in_thread(measured, records)

    async def find(self, key: str) -> KernelRecord | None:
        """Returns the record of an id, name or session name, as it is now."""
        found = await in_thread(self._kernels.find, check_key(key))
        return None if found is None else without_reasons(found)

    async def get(self, key: str) -> KernelRecord:
        """Like `find`; raises KernelNotFound."""
        return without_reasons(await in_thread(self._kernels.get, check_key(key)))

    async def kernel(self, key: str) -> Kernel:
        """Returns the handle on a kernel that there is, alive or dead; raises KernelNotFound."""
        known = self._handles.get(key)
        if known is not None and known.is_connected:
            return known
        return self._keep(key, await in_thread(self._settled, check_key(key)))

    async def answers(self, record: KernelRecord) -> bool:
        """Asks a kernel for a sign of life; one that runs a cell is taken at its word."""
        return record.alive and await in_thread(self._handle(record).answers)

    # -- opening ---------------------------------------------------------------------------------------------

    async def create(self, name: str | None = None, wanted: Wanted = _NOTHING) -> KernelRecord:
        """Opens a kernel under a name that no live kernel has, a new one if none is given; raises KernelExists."""
        if name is None:
            name = self.new_name() if wanted.session_name is None else wanted.session_name
        return without_reasons(await self._in_turn(self._create, check_name(name), self._options(wanted)))

    @staticmethod
    def new_name() -> str:
        """Returns a name that no kernel has."""
        return f"kernel-{os.urandom(6).hex()}"

    async def open(self, name: str, wanted: Wanted = _NOTHING) -> KernelRecord:
        """Returns the live kernel of a name; opens one, as it is wanted, if there is none.

        Raises KernelExists if the live one has other limits than those that are given.
        """
        return without_reasons(await self._in_turn_unless_live(check_name(name), self._open, self._options(wanted)))

    async def use(self, name: str) -> Kernel:
        """Returns the kernel for a cell that is sent to a name, as `Kernels.use` does."""
        known = self._handles.get(name)
        if known is not None and known.is_connected:
            return known
        return self._keep(name, await self._in_turn_unless_live(check_name(name), self._use, self._options()))

    async def _in_turn_unless_live(
        self, name: str, function: Callable[[str, KernelOptions], KernelRecord], options: KernelOptions
    ) -> KernelRecord:
        """Runs what starts a kernel, when it is its turn; where there is a live one it need not wait for that."""
        found = await in_thread(self._kernels.find, name)
        if found is not None and found.alive:
            return await in_thread(function, name, options)
        return await self._in_turn(function, name, options)

    async def _in_turn(self, function: Callable[..., T], *args: Any) -> T:
        async with self._starting:
            return await in_thread(function, *args)

    @contextlib.asynccontextmanager
    async def alone(self, about: str) -> AsyncGenerator[None]:
        """Has one at a time, of all processes on the home, do what this is about."""
        async with self._alone.setdefault(about, asyncio.Lock()):
            held = contextlib.ExitStack()
            await in_thread(held.enter_context, self._kernels.store.locking(about), undo=lambda _: held.close())
            with held:
                yield

    async def retag(self, kernel_id: str, changes: Mapping[str, str | None]) -> KernelRecord:
        """Sets tags of a kernel, and removes those that are None; raises KernelNotFound."""
        return without_reasons(await in_thread(retag, self._kernels, kernel_id, changes))

    # -- asking ----------------------------------------------------------------------------------------------

    async def ask(self, key: str, what: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Asks a kernel something between cells; raises KernelBusy if a cell runs in it, KernelDied if it is dead."""
        kernel = await self.kernel(key)
        try:
            return await query(kernel, what, dict(args), timeout=QUERY_PATIENCE)
        except TimeoutError as exc:
            raise KernelBusy(kernel.name) from exc

    async def variables(self, key: str) -> list[Variable]:
        """Returns what lives in a kernel."""
        return read_variables(key, await self.ask(key, "variables", {}))

    # -- interrupting and ending -----------------------------------------------------------------------------

    async def interrupt(self, key: str) -> bool:
        """Interrupts what holds a kernel; returns whether anything did. Raises KernelNotFound."""
        return await in_thread(self._kernels.interrupt, check_key(key))

    async def interrupt_execution(self, kernel_id: str, execution_id: str) -> None:
        """Interrupts one execution of a kernel, whichever process sent it; one that waits for its turn never runs."""
        kernel = await self.kernel(kernel_id)
        with contextlib.suppress(OSError):  # it has ended meanwhile
            connection = await connect(kernel)
            connection.interrupt(execution_id)
            kernel.release(connection)

    async def restart(self, key: str) -> KernelRecord:
        """Starts a kernel's process anew under the same name and id; raises KernelNotFound."""
        return without_reasons(await self._in_turn(self._restart, check_key(key)))

    async def destroy(self, key: str) -> bool:
        """Ends a kernel, its children and its files; returns whether there was one."""
        return await in_thread(self._kernels.destroy, check_key(key))

    async def wipe(self) -> list[str]:
        """Destroys every kernel; returns their ids."""
        return await in_thread(self._kernels.wipe)

    async def end_own(self) -> None:
        """Destroys the kernels that end with this process, rather than have them end after it."""
        if self._lifetime != "process":
            return
        own = [record for record in await self.all() if record.owner_pid == os.getpid()]
        await asyncio.gather(*(self.destroy(record.kernel_id) for record in own))
        if own:
            await in_thread(self._kernels.tidy)

    async def note_death(self, kernel: Kernel) -> bool:
        """Notes that a caller is told of a kernel's death, so that its name opens a fresh one when it is next used."""
        return await in_thread(self._kernels.condition.claim_report, kernel.record)

    # -- in a thread -----------------------------------------------------------------------------------------

    def _settled(self, key: str) -> KernelRecord:
        record = self._kernels.get(key)
        settled = record if record.alive else self._kernels.settled(record.kernel_id)
        if settled is None:
            raise KernelNotFound(key)
        if settled.alive and (differences := self._options().sandbox_differences(settled)):
            raise KernelExists(settled.name, differences)
        return settled

    def _create(self, name: str, options: KernelOptions) -> KernelRecord:
        self._require_room()
        return self._kernels.create(name, options)

    def _use(self, name: str, options: KernelOptions) -> KernelRecord:
        if self._most and self._kernels.find(name) is None:
            self._require_room()
        return self._kernels.use(name, options)

    def _require_room(self) -> None:
        if self._most and len(self._kernels.store.all()) >= self._most:
            sentence = f"there are {self._most:,} kernels, which is the limit; destroy one, or use one of them"
            raise LimitReached(sentence, of_server=True, retry_after=_FULL_PATIENCE)

    def _open(self, name: str, options: KernelOptions) -> KernelRecord:
        if self._most and self._kernels.find(name) is None:
            self._require_room()
        return self._kernels.get_or_create(name, options, as_it_is=True)

    def _restart(self, key: str) -> KernelRecord:
        record = self._kernels.get(key)
        return self._kernels.restart(record.kernel_id, environment=self._environment(record))

    # -- handles ---------------------------------------------------------------------------------------------

    def _options(self, wanted: Wanted = _NOTHING) -> KernelOptions:
        """Returns what a kernel is opened with. What a caller may have is at most what is configured."""
        limits = check_limits(wanted.limits)
        if limits is not None:
            limits.require_within(self.config.limits)
        return KernelOptions(
            session_name=wanted.session_name,
            tags=dict(wanted.tags or {}),
            cwd=self._cwd,
            env={**(self._env or {}), **wanted.env} if wanted.env else self._env,
            lifetime=self._lifetime,
            kernel_type=wanted.kernel_type,
            limits=limits,
            sandbox=self._sandbox,
        )

    def _handle(self, record: KernelRecord) -> Kernel:
        return self._kernels.kernel(
            without_reasons(record), environment=self._environment(record), describe=self._describe
        )

    def _environment(self, record: KernelRecord) -> dict[str, str] | None:
        given = self._kernels.environment_given(record.kernel_id)
        return self._env if given is None else given

    def _keep(self, key: str, record: KernelRecord) -> Kernel:
        if len(self._handles) >= _MOST_HANDLES:
            self._handles.clear()
        self._handles[key] = self._handle(record)
        return self._handles[key]
