"""One client's watch over a kernel: what it says in any client's cell, and its end, its restart and its return.

The client's own cells run on the same connection, so that all messages come in one order. A cell takes the
connection for as long as it runs; what the kernel says meanwhile is among the events of the cell.
"""

from __future__ import annotations

import asyncio
import contextlib

from kernelbox.base._errors import KernelBoxError, KernelNotFound
from kernelbox.shells._asyncio_connection import LoopConnection, connect, in_thread
from kernelbox.wire._messages import Begun, Clear, Comm, Display, Done, Output
from kernelbox.wire._messages import Watch as WatchRequest
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.host.engines._interface import Connection
    from kernelbox.host.process._process import ProcessIdentity

    News = Begun | Output | Display | Clear | Comm | Done

# Seconds. How often to check whether a dead kernel has been restarted, or an unreachable one can be reached.
_LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class Missed:
    """Says that the connection was lost, and what the kernel said meanwhile with it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Says that the kernel has died, by what cause; or, without a cause, that it was destroyed."""

    cause: str | None
    has_checkpoints: bool = False


@dataclass(frozen=True, slots=True)
class Restarted:
    """Says that another process has taken the place of the kernel's."""


@dataclass(frozen=True, slots=True)
class Lent:
    """The connection of a watch, for one cell; `give_back` is called when the cell has ended, in any way."""

    kernel: KernelHandle
    connection: Connection
    give_back: Callable[[], None]


class KernelWatch:
    """Follows a kernel, which `find` looks for, for as long as there is one, dead or alive."""

    def __init__(self, find: Callable[[], Awaitable[KernelHandle]]) -> None:
        self._find = find
        self._connection: LoopConnection | None = None
        self._wanted: asyncio.Future[Lent | None] | None = None
        self._returned = asyncio.Event()
        self._over = False
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<KernelWatch {'following' if self._connection else 'without a kernel'}>"

    async def take(self) -> Lent | None:
        """Returns the connection for a cell, after all earlier messages; None if no kernel is alive."""
        if self._over:
            return None
        self._wanted = asyncio.get_running_loop().create_future()
        if self._connection is not None:
            self._connection.wake()
        self._wake.set()
        try:
            return await self._wanted
        except asyncio.CancelledError:
            self._returned.set()
            raise
        finally:
            self._wanted = None

    def look(self) -> None:
        """Checks a dead kernel at once: it may have been restarted."""
        self._wake.set()

    async def follow(self) -> AsyncGenerator[News | Missed | Ended | Restarted]:
        """Yields the kernel's messages, its deaths and its restarts, until it is destroyed."""
        followed: ProcessIdentity | None = None
        reported_dead = False
        try:
            while True:
                kernel = await self._reach()
                if kernel is None:
                    yield Ended(None)
                    return
                if self._connection is not None:
                    process = kernel.record.process
                    if followed is not None:
                        yield Missed() if process == followed else Restarted()
                    elif reported_dead:
                        yield Restarted()
                    followed, reported_dead = process, False
                    async for news in self._listen(kernel, self._connection.connection):
                        yield news
                    continue
                if not reported_dead and not kernel.record.alive:
                    reported_dead = True
                    yield Ended(kernel.record.death or "it cannot be reached", kernel.has_checkpoints)
                await self._pause()
        finally:
            self._over = True
            self._refuse()
            self._close()

    async def _reach(self) -> KernelHandle | None:
        """Finds the kernel, and connects to it if it lives; None if it is not there any more."""
        while True:
            try:
                kernel = await self._find()
                break
            except KernelNotFound:
                return None
            except (KernelBoxError, OSError):  # nothing is known about it at the moment
                await self._pause()
        if kernel.record.alive:
            with contextlib.suppress(OSError):  # it ends this moment
                connection = await connect(kernel)
                connection.send(WatchRequest())
                self._connection = LoopConnection(connection)
        return kernel

    async def _listen(self, kernel: KernelHandle, connection: Connection) -> AsyncGenerator[News]:
        """Yields what a process says until the connection ends, and waits while a cell has it."""
        while not connection.ended:
            if self._wanted is not None and not self._wanted.done():
                await self._lend(kernel, connection)
                continue
            assert self._connection is not None
            await self._connection.wait()
            for message in connection.receive(0.0):
                if isinstance(message, _NEWS):
                    yield message
        await in_thread(connection.still_serves)  # gives a process that is about to end the moment that it takes
        self._close()

    async def _lend(self, kernel: KernelHandle, connection: Connection) -> None:
        assert self._connection is not None
        assert self._wanted is not None
        self._connection.detach()
        self._returned.clear()
        self._wanted.set_result(Lent(kernel, connection, self._returned.set))
        await self._returned.wait()
        if not connection.ended:
            self._connection = LoopConnection(connection)

    async def _pause(self) -> None:
        """Waits a while before a dead kernel is looked at again; a cell that wants it need not wait."""
        self._refuse()
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN):
                await self._wake.wait()
        self._refuse()

    def _refuse(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_NEWS = (Begun, Output, Display, Clear, Comm, Done)
