"""The asyncio shell: drives an execution on an event loop, the twin of `_blocking_run`, with the same orders.

Nothing here blocks the loop: bytes are awaited, and what waits for processes or files runs in a thread. The socket
is read only while a task awaits `next`, so a slow consumer slows the cell down. The clock runs all the same: when time
is up and no task awaits, a task of our own brings the execution to its end.
"""

from __future__ import annotations

import asyncio
import math
import os
import time

from kernelbox.base._errors import InheritedStream, StoreFailed
from kernelbox.core.cells._execution_orders import conclude_end, cut_off, drop_oldest, find_cut, next_order, obey
from kernelbox.shells._asyncio_connection import LoopConnection, connect, in_thread
from kernelbox.wire._execution import Execution
from kernelbox.wire._messages import Answer, Ask, Done, Interrupt, Query, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, Literal

    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.core.approvals._requests import ApprovalRequest
    from kernelbox.host.engines._interface import Connection
    from kernelbox.shells._asyncio_watch import Lent
    from kernelbox.wire._execution import Event
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._timeout_ladder import Order

# How often to look whether the kernel lives, where the system has no descriptor that says so, and whether it goes on,
# where part of a message has come.
_LOOK_EVERY = 0.5


class Run:
    """One execution on an event loop. One task awaits `next`; `cancel` and `stop` work from any other.

    Its states:

        unattended ◀──────▶ attended      no task awaits `next`; one does
             └────▶ ending ◀────┘         a task of our own brings it to its end: time is up, cancelled, the kernel died
                       └────▶ ended       the kernel is free; an attended run comes here directly when its cell is done
    """

    def __init__(self, kernel: KernelHandle, execution: Execution) -> None:
        self.execution = execution
        self._kernel = kernel
        self._loop = asyncio.get_running_loop()
        self._connection: LoopConnection | None = None
        self._lent: Lent | None = None
        self._state: Literal["unattended", "attended", "ending", "ended"] = "unattended"
        self._conclusion: asyncio.Task[None] | None = None
        self._cancel_wanted = False
        self._obeying: asyncio.Task[list[Event]] | None = None
        self._inherited = False
        self._last: list[Event] = []
        self._passed_on: list[ApprovalRequest | ToolEvent] = []
        self._held_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        self._free = asyncio.Event()
        self._at_end: list[Callable[[], object]] = []

    @classmethod
    async def begin(
        cls,
        kernel: KernelHandle,
        request: Execute,
        *,
        timeout: float | None,  # noqa: ASYNC109  # it interrupts the cell; cancelling the task would lose the result
        raw: bool = False,
        lent: Lent | None = None,
    ) -> Run:
        """Sends a cell to a kernel, on a connection that was lent if there is one; `raw` is the execution's."""
        run = cls(kernel, Execution(request, timeout=timeout, now=time.monotonic(), raw=raw))
        run._lent = lent
        try:
            connection = await connect(kernel) if lent is None else lent.connection
        except StoreFailed:
            raise
        except OSError:
            cause = await in_thread(kernel.cause)
            run.execution.died(cause, now=time.monotonic(), set_back=await in_thread(kernel.come_back, cause))
            run._finish()
            return run
        run._connection = LoopConnection(connection)
        run._connection.send(request)
        run._set_timer()
        return run

    def __repr__(self) -> str:
        return f"<Run {self._state} {self.execution!r}>"

    @property
    def kernel_id(self) -> str:
        return self._kernel.record.kernel_id

    @property
    def ended(self) -> bool:
        """Whether the kernel is free."""
        return self._state == "ended"

    def call_at_end(self, function: Callable[[], object]) -> None:
        """Calls a function once the kernel is free, or at once if it already is."""
        if self.ended:
            function()
        else:
            self._at_end.append(function)

    async def next(self) -> Sequence[Event | ApprovalRequest | ToolEvent]:
        """Waits for what comes next; an empty list is the end, when `execution.result` is set."""
        if self._inherited:
            raise InheritedStream
        if self._state == "unattended":
            self._state = "attended"
        try:
            while self._state == "attended" and self.execution.result is None:
                events = await self._step()
                passed_on, self._passed_on = self._passed_on, []
                if events or passed_on:
                    return [*passed_on, *events]
            if self._conclusion is not None:
                await asyncio.shield(self._conclusion)
        finally:
            if self._state == "attended":
                self._state = "unattended"
        self._finish()
        last, self._last = self._last, []
        return last

    def pass_on(self, item: ApprovalRequest | ToolEvent) -> None:
        """Makes `next` return a request, or what a tool's server says."""
        self._passed_on.append(item)
        if self._connection is not None:
            self._connection.wake()

    @property
    def waiting_events(self) -> int:
        """How many of them `next` has not returned yet."""
        return len(self._passed_on)

    def answer(self, answer: Answer) -> None:
        """Answers a question of the cell."""
        if self._connection is not None:
            self._connection.send(answer)

    def hold(self) -> None:
        """Stops the clock: what follows is time that a person takes."""
        if self._held_since is None:
            self._held_since = time.monotonic()
            self._set_timer()

    def go_on(self) -> None:
        """Starts the clock again."""
        if self._held_since is not None:
            self.execution.hold(time.monotonic() - self._held_since)
            self._held_since = None
            self._set_timer()

    def cancel(self) -> None:
        """Begins to stop the cell, by the same ladder as a timeout."""
        self._cancel_wanted = True
        self.go_on()
        self._look()

    async def stop(self) -> None:
        """Stops the cell, if it still runs, and returns when the kernel is free."""
        if self.execution.result is not None and self._state != "ending":
            self._finish()  # it had ended, and no task asked for more
        if not self.ended:
            self.cancel()
            await self.until_ended()

    async def until_ended(self) -> None:
        """Waits until the kernel is free."""
        if not self.ended:
            await self._free.wait()

    def forget(self) -> None:
        """Lets go of an execution of the process that we were forked from, and of its event loop, whose epoll(7)
        instance we share: what we took off it would be taken off our parent's.
        """
        self._inherited = True
        self._state = "ended"
        self._connection = None

    async def _step(self) -> list[Event]:
        """Waits for what comes next: messages, the end of the kernel, the deadline, or a cancel."""
        connection, execution = self._connection, self.execution
        assert connection is not None
        await self._until_obeyed()
        if not self._cancel_wanted:
            await connection.wait()
        events: list[Event] = []
        received = connection.connection.receive(0.0)
        try:
            if execution.is_long and any(isinstance(message, Done) for message in received):
                await in_thread(execution.put_together)
        finally:  # what has been read comes only once
            events += execution.receive_all(received, now=time.monotonic())
        if execution.result is not None:
            return events
        if connection.connection.ended:
            await self._conclude(self._take_end(connection))
        elif reason := find_cut(connection.connection, execution):
            connection.detach()
            cut_off(connection.connection, execution, reason)
        elif (order := self._next_order(connection)) in ("kill", "abandon"):
            await self._conclude(self._give_up(connection, order))
        elif order is not None and not connection.unsent:  # or the kernel has no request; the next order gives up
            self._obeying = self._loop.create_task(
                in_thread(obey, order, self._kernel, connection.connection, execution)
            )
            await self._until_obeyed()
        self._set_timer()
        return events

    async def _until_obeyed(self) -> None:
        """Waits until our thread no longer uses the connection, even if the task that started it was cancelled."""
        if self._obeying is not None:
            await asyncio.shield(self._obeying)
            self._obeying = None

    def _next_order(self, connection: LoopConnection) -> Order | None:
        if self._cancel_wanted:
            self._cancel_wanted = False
            return self.execution.cancel(now=time.monotonic())
        if self._held_since is not None:
            return None
        return next_order(connection.connection, self.execution)

    # -- the end ---------------------------------------------------------------------------------------------

    async def _conclude(self, last: Coroutine[Any, Any, None]) -> None:
        """Awaits what ends the execution in a task that goes on when the one that awaits is cancelled."""
        if self._state == "ending":
            await last  # this is that task
            return
        self._begin_ending(last)
        assert self._conclusion is not None
        await asyncio.shield(self._conclusion)

    def _begin_ending(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        self._state = "ending"
        self._conclusion = self._loop.create_task(self._run_to_end(last))

        def end(_: object) -> None:
            """Ends it also when the task was cancelled before it began, as a loop that closes may do."""
            if last is not None:
                last.close()
            self._finish()

        self._conclusion.add_done_callback(end)

    async def _run_to_end(self, last: Coroutine[Any, Any, None] | None) -> None:
        try:
            if last is not None:
                await last
            while self.execution.result is None:
                for event in await self._step():
                    if isinstance(event, Ask):
                        self.answer(Answer(event.id, event.ask, False, "the execution was cancelled"))
                    else:
                        self._last.append(event)
                drop_oldest(self._last)
        finally:
            self._finish()

    async def _take_end(self, connection: LoopConnection) -> None:
        connection.detach()
        self._last += await in_thread(conclude_end, self._kernel, connection.connection, self.execution)

    async def _give_up(self, connection: LoopConnection, order: Order) -> None:
        connection.detach()
        self._last += await in_thread(obey, order, self._kernel, connection.connection, self.execution)

    def _finish(self) -> None:
        if self.ended:
            return
        self._state = "ended"
        self._free.set()
        connection, self._connection = self._connection, None
        if self._timer is not None:
            self._timer.cancel()
        if connection is not None:
            connection.detach()
            if self.execution.result is None or connection.unsent:
                connection.connection.close()  # half of something is in it
            elif self._lent is None:
                self._kernel.release(connection.connection)
        if self._lent is not None:
            self._lent.give_back()
        for function in self._at_end:
            function()

    # -- the clock -------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Sets the timer to when the execution is due."""
        due = math.inf if self._held_since is not None else self.execution.ladder.due
        if self._connection is None:
            return
        if not self._connection.watched or self._connection.connection.awaits_rest:
            due = min(due, time.monotonic() + _LOOK_EVERY)
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due < math.inf:
            self._timer = self._loop.call_later(max(0.0, due - time.monotonic()), self._on_time)

    def _on_time(self) -> None:
        self._timer, self._timer_due = None, math.inf
        if self._held_since is None and self.execution.ladder.due <= time.monotonic():
            self._look()
            return
        if self._connection is not None:
            self._connection.wake()  # to look whether the kernel lives and goes on
        self._set_timer()

    def _look(self) -> None:
        """Wakes the task that awaits the execution, or starts one that brings it to its end."""
        if self._connection is None:
            return
        self._connection.wake()
        if self._state == "unattended":
            self._begin_ending()


async def query(
    kernel: KernelHandle,
    what: str,
    args: dict[str, Any],
    *,
    timeout: float | None,  # noqa: ASYNC109  # part of the query
) -> dict[str, Any]:
    """Asks a kernel something between cells; raises KernelDied and TimeoutError.

    A connection that ends while the kernel lives was closed by what a cell has left behind: it is asked again.
    """
    async with asyncio.timeout(timeout):
        while True:
            try:
                connection = LoopConnection(await connect(kernel))
            except StoreFailed:
                raise
            except OSError as exc:
                raise await in_thread(lambda: kernel.died(kernel.cause())) from exc
            reply = await _ask(kernel, connection, Query(os.urandom(8).hex(), what, args))
            if reply is not None:
                return reply.content


async def _ask(kernel: KernelHandle, connection: LoopConnection, asked: Query) -> Reply | None:
    """Returns the answer to a question, None if the connection ended and the kernel lives; raises KernelDied."""
    under, reply = connection.connection, None
    try:
        connection.send(asked)
        while reply is None and not under.ended:
            await connection.wait()
            for message in under.receive(0.0):
                if isinstance(message, Reply) and message.id == asked.id:
                    reply = message
    finally:
        connection.detach()
        if reply is not None:
            kernel.release(under)
        elif not under.ended:  # the caller waits no longer
            connection.send(Interrupt(asked.id))
            connection.close()
    if reply is None and (cause := await in_thread(_close_ended, under)) is not None:
        raise await in_thread(kernel.died, cause)
    return reply


def _close_ended(connection: Connection) -> str | None:
    """Closes a connection that has ended; returns why its kernel has, None if that lives."""
    try:
        return None if connection.still_serves() else connection.cause()
    finally:
        connection.close()
