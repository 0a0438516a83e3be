"""Tool calls in the blocking shell: their answers come from another thread, and end the wait for the kernel."""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque

from kernelbox.base._light_stdlib import RLock
from kernelbox.base._unique_objects import Owner
from kernelbox.core._executor_values import ToolEvent
from kernelbox.core.approvals._approval_gate import Waiting
from kernelbox.wire._messages import HOST_SERVER, Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kernelbox.core.cells._host_functions import HostFunctions
    from kernelbox.host.engines._interface import Connection
    from kernelbox.tools._toolbox import Toolbox
    from kernelbox.wire._messages import Ask

# Events kept for a caller that does not read them. Beyond this number they are dropped.
_MOST_EVENTS = 1_000

# While a kernel has not taken all that was sent, the answers of other calls are looked for this often.
_SENDING = 0.05


class Calls(Owner):
    """The calls of one execution."""

    def __init__(self, find_toolbox: Callable[[], Toolbox], functions: HostFunctions | None) -> None:
        self._find_toolbox = find_toolbox
        self._functions = functions
        self._running: dict[int, Future[Answer]] = {}
        self._waiting = Waiting()
        self._arrived: deque[Answer | ToolEvent] = deque()
        self._pipe: tuple[int, int] | None = None
        # Another thread writes to the pipe: not to a number that was closed and belongs to somebody else by then.
        self._waking = RLock()

    def __repr__(self) -> str:
        return f"<Calls running={len(self._running)}>"

    def start(self, ask: Ask) -> Answer | None:
        """Begins an accepted call; its answer comes later, or now, if too much is under way already."""
        refusal = self._waiting.add(ask)
        if refusal is not None:
            return refusal
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
        if ask.server_name != HOST_SERVER:
            future = self._find_toolbox().submit(ask, self._on_event)
        else:
            from kernelbox.core.cells._host_functions import (
                HostFunctions,  # few cells have any, and it is slow to import
            )

            future = (self._functions or HostFunctions({})).submit(ask)
        self._running[ask.ask] = future
        future.add_done_callback(self._on_done)
        return None

    def withdraw(self, number: int) -> None:
        """Cancels a call that no thread of the cell waits for."""
        future = self._end(number)
        if future is not None:
            future.cancel()

    def wait(self, connection: Connection, timeout: float | None) -> float | None:
        """Waits, while calls are under way, for them or the kernel; returns how long the kernel is to be waited for."""
        if self._pipe is None or not (self._running or self._arrived):
            return timeout
        if self._arrived:
            return 0.0
        if connection.unsent:
            return _SENDING if timeout is None else min(timeout, _SENDING)
        poller = select.poll()
        for fd in (self._pipe[0], connection.fileno(), connection.death_fileno()):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        poller.poll(None if timeout is None else max(0.0, timeout) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe[0], 4096)
        return 0.0

    def take(self) -> list[Answer | ToolEvent]:
        """Returns what has come."""
        taken = []
        while self._arrived:
            item = self._arrived.popleft()
            if isinstance(item, ToolEvent) or self._end(item.ask) is not None:
                taken.append(item)
        return taken

    def close(self) -> None:
        """Cancels what is still under way: the execution is over."""
        running, self._running = self._running, {}
        for future in running.values():
            future.cancel()
        with self._waking:
            pipe, self._pipe = self._pipe, None
            for end in pipe or ():
                os.close(end)

    def _end(self, number: int) -> Future[Answer] | None:
        self._waiting.remove(number)
        return self._running.pop(number, None)

    def _on_event(self, event: ToolEvent) -> None:
        if len(self._arrived) < _MOST_EVENTS:
            self._arrived.append(event)
            self._wake()

    def _on_done(self, future: Future[Answer]) -> None:
        if not future.cancelled():
            self._arrived.append(future.result())
            self._wake()

    def _wake(self) -> None:
        """Ends the wait; called in the thread of the sessions."""
        with self._waking, contextlib.suppress(BlockingIOError):  # it is full
            if self._pipe is not None:
                os.write(self._pipe[1], b"x")
