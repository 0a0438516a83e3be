"""The asyncio shell: drives an execution on an event loop, the twin of `_blocking`, with the same orders.

Nothing here blocks the loop: bytes are awaited, and what waits for processes or files runs in a thread. The socket
is read only while somebody awaits `next`, so a slow consumer slows the cell down. The clock runs all the same: when
time is up and nobody awaits, a task of its own brings the execution to its end.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time

from kernelbox.base._errors import KernelDied
from kernelbox.shells import _blocking
from kernelbox.wire._execution import Execution
from kernelbox.wire._framing import ProtocolError, encode
from kernelbox.wire._messages import Answer, Ask, Execute, Interrupt, Query, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, Literal, TypeVar

    from kernelbox.core._kernels import Kernels
    from kernelbox.core._pool import AnyConnection
    from kernelbox.core._requests import ApprovalRequest
    from kernelbox.host._record import KernelRecord
    from kernelbox.wire._execution import Event, Order

    T = TypeVar("T")

# How often to look whether the kernel lives, where the system has no descriptor that says so.
_LOOK_EVERY = 0.5


class Run:
    """One execution on an event loop. One task awaits `next`; `cancel` and `stop` work from any other."""

    def __init__(
        self, kernels: Kernels, record: KernelRecord, execution: Execution, on_end: Callable[[], object]
    ) -> None:
        self.execution = execution
        self._on_end = on_end
        self._kernels = kernels
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._link: _Link | None = None
        self._attended = False
        self._cancel: Literal["", "wanted", "begun"] = ""
        self._last: list[Event] = []
        self._requests: list[ApprovalRequest] = []
        self._held_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        self._ending: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @classmethod
    async def begin(
        cls,
        kernels: Kernels,
        record: KernelRecord,
        code: str,
        *,
        timeout: float | None,  # noqa: ASYNC109  # it interrupts the cell; cancelling the task would lose the result
        text_limit: int,
        on_end: Callable[[], object] = lambda: None,
        **options: Any,
    ) -> Run:
        """Sends a cell to a kernel; `options` are those of `Execute`. `on_end` is called once the kernel is free."""
        request = Execute(os.urandom(8).hex(), code, text_limit=text_limit, **options)
        frame = encode(request)
        run = cls(kernels, record, Execution(request, timeout=timeout, now=time.monotonic()), on_end)
        try:
            connection = await connect(kernels, record)
        except OSError:
            cause = await in_thread(_blocking.find_cause, kernels, record, None)
            run.execution.died(cause, now=time.monotonic())
            run._finish()
            return run
        run._link = _Link(connection)
        run._link.send(frame)
        run._arm()
        return run

    def __repr__(self) -> str:
        return f"<Run {self.execution!r}>"

    @property
    def ended(self) -> bool:
        """Whether the kernel is free."""
        return self._ended.is_set()

    async def next(self) -> Sequence[Event | ApprovalRequest]:
        """Waits for what comes next; an empty list is the end, when `execution.result` is set."""
        self._attended = True
        try:
            while self.execution.result is None and self._ending is None:
                events = await self._step()
                requests, self._requests = self._requests, []
                if events or requests:
                    return [*requests, *events]
            if self._ending is not None:
                await asyncio.shield(self._ending)
        finally:
            self._attended = False
        self._finish()
        last, self._last = self._last, []
        return last

    def pass_on(self, request: ApprovalRequest) -> None:
        """Has `next` return a request."""
        self._requests.append(request)
        if self._link is not None:
            self._link.wake()

    def answer(self, answer: Answer) -> None:
        """Answers a question of the cell's."""
        if self._link is not None:
            self._link.send(encode(answer))

    def hold(self) -> None:
        """Stops the clock: what follows is time that a person takes."""
        if self._held_since is None:
            self._held_since = time.monotonic()
            self._arm()

    def go_on(self) -> None:
        """Starts the clock again."""
        if self._held_since is not None:
            self.execution.hold(time.monotonic() - self._held_since)
            self._held_since = None
            self._arm()

    def cancel(self) -> None:
        """Begins to stop the cell, by the same ladder as a timeout."""
        self._cancel = self._cancel or "wanted"
        self.go_on()
        self._see_to_it()

    async def stop(self) -> None:
        """Stops the cell, if it still runs, and returns when the kernel is free."""
        if self.execution.result is not None and self._ending is None:
            self._finish()  # it had ended, and nobody asked for more
        if not self._ended.is_set():
            self.cancel()
            await self._ended.wait()

    async def _step(self) -> list[Event]:
        """Waits for what comes next: messages, the end of the kernel, the deadline, or a cancel."""
        link, execution = self._link, self.execution
        assert link is not None
        if self._cancel != "wanted":
            await link.wait()
        events: list[Event] = []
        try:
            for message in link.connection.receive(0.0):
                events += execution.receive(message, now=time.monotonic())
        except ProtocolError as exc:
            link.close()
            execution.died(f"its connection broke: {exc}", now=time.monotonic())
        if execution.result is not None:
            return events
        if link.connection.ended:
            await self._conclude(self._bury(link))
        elif (order := self._next_order(link)) in ("kill", "abandon"):
            await self._conclude(self._give_up(link, order))
        elif order is not None and not link.unsent:  # or the kernel has not got the request; the next order gives up
            await in_thread(_blocking.obey, order, self._kernels, self._record, link.connection, execution)
        self._arm()
        return events

    def _next_order(self, link: _Link) -> Order | None:
        if self._cancel == "wanted":
            self._cancel = "begun"
            return self.execution.cancel(now=time.monotonic())
        if self._held_since is not None:
            return None
        return _blocking.next_order(link.connection, self.execution)

    async def _bury(self, link: _Link) -> None:
        link.detach()
        self._last = await in_thread(_blocking.bury, self._kernels, self._record, link.connection, self.execution)

    async def _give_up(self, link: _Link, order: Order) -> None:
        link.detach()
        try:
            self._last = await in_thread(
                _blocking.obey, order, self._kernels, self._record, link.connection, self.execution
            )
        except Exception as exc:  # noqa: BLE001  # whatever kept another kernel from starting, this execution is over
            cause = f"it did not stop when interrupted and was killed; no other could be started: {exc}"
            self.execution.died(cause, now=time.monotonic())

    async def _conclude(self, last: Coroutine[Any, Any, None]) -> None:
        """Awaits what ends the execution in a task that goes on when the one that awaits is cancelled."""
        if self._ending is None:
            self._ending = self._loop.create_task(self._run_down(last))
            await asyncio.shield(self._ending)
        else:
            await last  # this is that task

    # -- the clock -------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Sets the timer to when the execution is due."""
        due = math.inf if self._held_since is not None else self.execution.due
        if self._link is None:
            due = math.inf
        elif not self._link.watched:
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
        if self._held_since is None and self.execution.due <= time.monotonic():
            self._see_to_it()
            return
        if self._link is not None:
            self._link.wake()  # to look whether the kernel lives
        self._arm()

    def _see_to_it(self) -> None:
        """Has the execution looked at: by whoever awaits it, or else by a task that brings it to its end."""
        if self._link is None:
            return
        self._link.wake()
        if not self._attended and self._ending is None:
            self._ending = self._loop.create_task(self._run_down())

    async def _run_down(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        try:
            if last is not None:
                await last
            while self.execution.result is None:
                for event in await self._step():
                    if isinstance(event, Ask):
                        self.answer(Answer(event.id, event.ask, False, "the execution was cancelled"))
        finally:
            self._finish()

    def _finish(self) -> None:
        if self._ended.is_set():
            return
        self._ended.set()
        link, self._link = self._link, None
        self._arm()
        if link is not None:
            link.detach()
            if self.execution.result is None or link.unsent:
                link.connection.close()  # half of something is in it
            else:
                self._kernels.release(self._record, link.connection)
        self._on_end()


async def query(
    kernels: Kernels,
    record: KernelRecord,
    what: str,
    args: dict[str, Any],
    *,
    timeout: float,  # noqa: ASYNC109  # part of the query
) -> dict[str, Any]:
    """Asks a kernel something between cells; raises KernelDied and TimeoutError."""
    asked = Query(os.urandom(8).hex(), what, args)
    try:
        link = _Link(await connect(kernels, record))
    except OSError as exc:
        raise KernelDied(record.name, await in_thread(_blocking.find_cause, kernels, record, None)) from exc
    answered = False
    try:
        link.send(encode(asked))
        async with asyncio.timeout(timeout):
            while not link.connection.ended:
                await link.wait()
                for message in link.connection.receive(0.0):
                    if isinstance(message, Reply) and message.id == asked.id:
                        answered = True
                        return message.content
    finally:
        link.detach()
        if not answered and not link.connection.ended:
            link.send(encode(Interrupt(asked.id)))
        if answered:
            kernels.release(record, link.connection)
        else:
            link.close()
    raise KernelDied(record.name, await in_thread(_blocking.find_cause, kernels, record, link.connection))


async def connect(kernels: Kernels, record: KernelRecord) -> AnyConnection:
    """Returns a connection; a new one is made in a thread, because a kernel that takes no calls would block."""
    if kernels.has_connection(record):
        return kernels.connect(record)
    return await in_thread(kernels.connect, record, undo=lambda connection: kernels.release(record, connection))


async def in_thread(function: Callable[..., T], *args: Any, undo: Callable[[T], object] | None = None) -> T:
    """Runs a blocking function in a thread, to its end.

    A caller that is cancelled meanwhile does not wait for it; what the function made is then passed to `undo`,
    in the same thread.
    """
    lock, abandoned = threading.Lock(), False
    made: list[T] = []

    def work() -> T:
        value = function(*args)
        with lock:
            made.append(value)
            orphaned = abandoned
        if orphaned and undo is not None:
            undo(value)
        return value

    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        with lock:
            abandoned = True
        if made and undo is not None:
            asyncio.get_running_loop().run_in_executor(None, undo, made[0])
        raise


class _Link:
    """A connection as the event loop sees it: awaited, and written to without blocking."""

    def __init__(self, connection: AnyConnection) -> None:
        self.connection = connection
        self.unsent = b""
        self._loop = asyncio.get_running_loop()
        self._fd = connection.fileno()
        self._pidfd = connection.process.fileno()
        self._waiter: asyncio.Future[None] | None = None
        self._attached = True
        self._dead = False
        self._woken = False
        if self.watched:
            self._loop.add_reader(self._pidfd, self._on_death)

    @property
    def watched(self) -> bool:
        """Whether the end of the kernel's process ends a wait."""
        return self._pidfd >= 0

    async def wait(self) -> None:
        """Waits until there is something to read, the kernel has ended, or `wake` is called."""
        if not self._attached or self._dead or self._woken:
            self._woken = False
            return
        self._waiter = self._loop.create_future()
        self._loop.add_reader(self._fd, self.wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._attached:
                self._loop.remove_reader(self._fd)

    def wake(self) -> None:
        """Ends the wait, or the next one if nobody waits now."""
        if self._waiter is None:
            self._woken = True
        elif not self._waiter.done():
            self._waiter.set_result(None)

    def send(self, frame: bytes) -> None:
        """Sends a frame; what the kernel does not take at once follows when it does."""
        if self.unsent:
            self.unsent += frame
            return
        self.unsent = bytes(self.connection.send_some(memoryview(frame)))
        if self.unsent and self._attached:
            self._loop.add_writer(self._fd, self._send_rest)

    def detach(self) -> None:
        """Takes the connection off the event loop."""
        if self._attached:
            self._attached = False
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            if self.watched:
                self._loop.remove_reader(self._pidfd)
            self.wake()

    def close(self) -> None:
        self.detach()
        self.connection.close()

    def _send_rest(self) -> None:
        self.unsent = bytes(self.connection.send_some(memoryview(self.unsent)))
        if not self.unsent:
            self._loop.remove_writer(self._fd)

    def _on_death(self) -> None:
        self._dead = True
        self._loop.remove_reader(self._pidfd)
        self.wake()
