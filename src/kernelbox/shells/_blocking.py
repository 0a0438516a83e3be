"""The blocking shell: drives an execution over a connection, with the clock and the operating system around it."""

from __future__ import annotations

import math
import time

from kernelbox.base._errors import StoreFailed, attach_result
from kernelbox.core._orders import conclude_death, drop_oldest, next_order, obey
from kernelbox.wire._execution import Execution
from kernelbox.wire._messages import Answer, Ask, Withdraw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Literal

    from kernelbox.core._kernel import Kernel
    from kernelbox.core._tool_events import ToolEvent
    from kernelbox.host._engine import Connection
    from kernelbox.shells._blocking_calls import Calls
    from kernelbox.wire._execution import Event
    from kernelbox.wire._messages import Execute
    from kernelbox.wire._results import ExecutionResult

    Steps = Generator[Event | ToolEvent, Answer | Literal["later"] | None, None]

# poll(2) takes milliseconds as an int; an execution may be given more time than fits.
_LONGEST_WAIT = 24 * 3600.0


def run(kernel: Kernel, request: Execute, timeout: float | None) -> ExecutionResult:
    """Runs a cell to its end; what it asks is rejected."""
    steps = drive(kernel, request, timeout)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: ExecutionResult = stop.value
            return result


def drive(
    kernel: Kernel, request: Execute, timeout: float | None, calls: Calls | None = None
) -> Generator[Event | ToolEvent, Answer | Literal["later"] | None, ExecutionResult]:
    """Runs a cell, yielding events; the generator's return value is the result.

    What is sent back for an Ask answers it, or "later", if `calls` will have the answer; otherwise it is rejected. If
    the caller stops before the end, the cell is interrupted and waited for: nothing runs on unseen.
    """
    execution = Execution(request, timeout=timeout, now=time.monotonic())
    try:
        connection = kernel.connect()
    except StoreFailed:
        raise
    except OSError:
        execution.died(kernel.cause(), now=time.monotonic())
        assert execution.result is not None
        return execution.result
    connection.send(request)
    try:
        while execution.result is None:
            yield from _step(kernel, connection, execution, calls)
    except KeyboardInterrupt as exc:
        missed = _stop(kernel, connection, execution)
        attach_result(exc, execution.result, missed)
        raise
    finally:
        if calls is not None:
            calls.close()
        if execution.result is None:
            _stop(kernel, connection, execution)
        kernel.release(connection)
    return execution.result


def _step(kernel: Kernel, connection: Connection, execution: Execution, calls: Calls | None = None) -> Steps:
    """Waits for what comes next: messages, answers of tools, the end of the kernel, or the deadline."""
    wait = None if execution.due == math.inf else min(execution.due - time.monotonic(), _LONGEST_WAIT)
    if calls is not None:
        wait = calls.wait(connection, wait)
        yield from _pass_on(connection, calls)
    messages, now = connection.receive(wait), time.monotonic()
    # All are taken before any is passed on: a caller who leaves now must not take the end of the cell with him.
    for event in [event for message in messages for event in execution.receive(message, now=now)]:
        answer = yield event
        if isinstance(event, Withdraw) and calls is not None:
            calls.withdraw(event.ask)
        if isinstance(event, Ask) and answer != "later":
            connection.send(answer or Answer(event.id, event.ask, False, "the application takes no questions"))
    if execution.result is not None:
        return
    if connection.ended:
        yield from conclude_death(connection, execution)
        return
    order = next_order(connection, execution)
    if order is not None:
        yield from obey(order, kernel, connection, execution)


def _pass_on(connection: Connection, calls: Calls) -> Steps:
    """Sends the answers of tools that have come, and yields what their servers say."""
    for item in calls.take():
        if isinstance(item, Answer):
            connection.send(item)
        else:
            yield item


def _stop(kernel: Kernel, connection: Connection, execution: Execution) -> list[Event]:
    """Ends an execution that its caller has left, by the same ladder as a timeout; returns what it still wrote."""
    events: list[Event] = []
    order = execution.cancel(now=time.monotonic())
    if order is not None:
        events += obey(order, kernel, connection, execution)
    while execution.result is None:
        events += _step(kernel, connection, execution)  # type: ignore[arg-type]  # no calls, so no events of tools
        drop_oldest(events)
    return events
