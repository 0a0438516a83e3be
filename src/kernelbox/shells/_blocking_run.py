"""The blocking shell: drives an execution over a connection, with the clock and the operating system around it."""

from __future__ import annotations

import math
import time
from _thread import start_new_thread

from kernelbox.base._errors import InheritedStream, StoreFailed, attach_result
from kernelbox.base._light_stdlib import Flag, RLock
from kernelbox.core.approvals._approve_argument import NO_APPROVE
from kernelbox.core.cells._execution_orders import conclude_end, cut_off, drop_oldest, find_cut, next_order, obey
from kernelbox.wire._execution import Execution
from kernelbox.wire._messages import HOST_SERVER, Answer, Ask, Withdraw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Literal

    from kernelbox.core._executor_values import ToolEvent
    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.host.engines._interface import Connection
    from kernelbox.shells._blocking_calls import Calls
    from kernelbox.wire._execution import Event
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import ExecutionResult

    Later = Literal["later"]
    Seen = Event | ToolEvent

# poll(2) takes milliseconds as an int; an execution may be given more time than fits.
_LONGEST_WAIT = 24 * 3600.0

_NO_ONE_WAITS = "the time of the cell is up, or its caller has gone"


def run(
    kernel: KernelHandle,
    request: Execute,
    timeout: float | None,
    connection: Connection | None = None,
    see: Callable[[Seen], None] | None = None,
) -> ExecutionResult:
    """Runs a cell to its end; what it asks is rejected, and `see` is called with each event."""
    steps = drive(kernel, request, timeout, connection=connection)
    try:
        while True:
            try:
                event = next(steps)
            except StopIteration as stop:
                result: ExecutionResult = stop.value
                return result
            if see is not None:
                see(event)
    finally:
        steps.close()


def drive(
    kernel: KernelHandle,
    request: Execute,
    timeout: float | None,
    calls: Calls | None = None,
    *,
    connection: Connection | None = None,
    may_pause: bool = False,
) -> Generator[Seen, Answer | Later | None, ExecutionResult]:
    """Runs a cell, yielding events; the generator's return value is the result.

    The caller sends back the answer to an Ask, or "later" if `calls` will have it; otherwise the Ask is rejected. If
    the caller stops before the end, the cell is interrupted and waited for. `connection` is one that the caller has
    taken from the pool. A caller that `may_pause` between events is not waited for when the time is up. A fork of the
    process leaves the execution alone: continuing it there raises InheritedStream.
    """
    execution = Execution(request, timeout=timeout, now=time.monotonic())
    connection = connection or _connect(kernel, execution)
    if connection is None:
        assert execution.result is not None
        return execution.result
    connection.send(request)
    run = _Run(kernel, connection, execution, calls)
    try:
        while execution.result is None:
            for event in run.step():
                if may_pause:
                    run.keep_time()
                if isinstance(event, Ask):
                    run.expect_answer(event)
                    run.answer(event, (yield event))
                else:
                    yield event
        yield from run.take_missed()
    except KeyboardInterrupt as exc:
        if connection.inherited:
            raise
        try:
            missed = run.stop()
        except KeyboardInterrupt:  # Ctrl-C again: the ladder ends the cell in any case, and its output must not be lost
            missed = run.stop()
        attach_result(exc, execution.result, missed)
        raise
    finally:
        if calls is not None:
            calls.close()
        if execution.result is None and not connection.inherited:
            run.stop()
        run.end()
        kernel.release(connection)
    return execution.result


def _connect(kernel: KernelHandle, execution: Execution) -> Connection | None:
    """Returns a connection to the kernel; None if it has died, which ends the execution. Raises StoreFailed."""
    try:
        return kernel.connect()
    except StoreFailed:
        raise
    except OSError:
        cause = kernel.cause()
        execution.died(cause, now=time.monotonic(), set_back=kernel.come_back(cause))
        return None


class _Run:
    """An execution over a connection. One thread at a time drives it: the caller's, or a thread of this module if the
    time is up while the caller is away.
    """

    def __init__(self, kernel: KernelHandle, connection: Connection, execution: Execution, calls: Calls | None) -> None:
        self._kernel = kernel
        self._connection = connection
        self._execution = execution
        self._calls = calls
        self._driving = RLock()  # a generator that is garbage may be closed by the thread that has it
        self._missed: list[Seen] = []
        self._over: Flag | None = None  # set at the end, for the thread that keeps the time

    def __repr__(self) -> str:
        return f"<_Run of {self._execution!r}>"

    def step(self) -> list[Seen]:
        """Waits for what comes next, and does what must be done because of it or because of the time."""
        with self._driving:
            return [] if self._execution.result is not None else self._step()

    def expect_answer(self, ask: Ask) -> None:
        """Notes a question: if the time is up before it is answered, the result says so."""
        from kernelbox.base._safe_text import show_call  # few cells ask

        self._execution.wait_for_answer(show_call(ask.server_name, ask.tool_name, ask.tool_args))

    def answer(self, ask: Ask, answer: Answer | Later | None) -> None:
        """Answers a question, unless the execution has ended meanwhile."""
        with self._driving:
            self._execution.wait_for_answer("")
            if self._execution.result is None and answer != "later":
                self._connection.send(answer or _unanswered(ask))

    def take_missed(self) -> list[Seen]:
        """Returns the events that came while the caller was away."""
        missed, self._missed = self._missed, []
        return missed

    def stop(self) -> list[Seen]:
        """Ends an execution that its caller has left, by the same ladder as a timeout; returns what it still wrote."""
        with self._driving:
            order = self._execution.cancel(now=time.monotonic())
            if order is not None:
                self._missed += obey(order, self._kernel, self._connection, self._execution)
            self._run_to_end()
            return self.take_missed()

    def keep_time(self) -> None:
        """Ends the execution when its time is up, even if the caller is away then."""
        if self._over is None:
            self._over = Flag()
            start_new_thread(self._keep_time, (self._over,))

    def end(self) -> None:
        """Lets the thread that keeps the time leave."""
        if self._over is not None:
            self._over.set()

    def _keep_time(self, over: Flag) -> None:
        while not over.wait(min(max(0.0, self._execution.ladder.due - time.monotonic()), _LONGEST_WAIT)):
            if time.monotonic() < self._execution.ladder.due:
                continue
            with self._driving:
                if self._execution.ladder.due <= time.monotonic():  # or the caller's thread was there, and is not away
                    self._run_to_end()
                    return

    def _run_to_end(self) -> None:
        while self._execution.result is None:
            for event in self._step():
                if isinstance(event, Ask):
                    self._connection.send(_refusal(event, _NO_ONE_WAITS))
                else:
                    self._missed.append(event)
            drop_oldest(self._missed)

    def _step(self) -> list[Seen]:
        connection, execution = self._connection, self._execution
        wait = None if execution.ladder.due == math.inf else min(execution.ladder.due - time.monotonic(), _LONGEST_WAIT)
        said: list[Seen] = []
        if self._calls is not None:
            wait = self._calls.wait(connection, wait)
            said = self._pass_on(self._calls)
        messages, now = connection.receive(wait), time.monotonic()
        events: list[Seen] = [*said, *execution.receive_all(messages, now=now)]
        for event in events:
            if self._calls is not None and isinstance(event, Withdraw):
                self._calls.withdraw(event.ask)
        if execution.result is not None:
            return events
        if connection.inherited:
            raise InheritedStream
        if connection.ended:
            return [*events, *conclude_end(self._kernel, connection, execution)]
        if reason := find_cut(connection, execution):
            return [*events, *cut_off(connection, execution, reason)]
        order = next_order(connection, execution)
        return events if order is None else [*events, *obey(order, self._kernel, connection, execution)]

    def _pass_on(self, calls: Calls) -> list[Seen]:
        """Sends the answers of tools that have come; returns what their servers say."""
        said: list[Seen] = []
        for item in calls.take():
            if isinstance(item, Answer):
                self._connection.send(item)
            else:
                said.append(item)
        return said


def _unanswered(ask: Ask) -> Answer:
    """Returns the answer to an ask of a cell that was run without functions and without anyone to ask."""
    if ask.server_name != HOST_SERVER:
        return _refusal(ask, NO_APPROVE)
    from kernelbox.core.cells._host_functions import no_function  # few cells ask

    return no_function(ask)


def _refusal(ask: Ask, reason: str) -> Answer:
    return Answer(ask.id, ask.ask, False, reason)
