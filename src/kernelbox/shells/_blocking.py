"""The blocking shell: drives an execution over a connection, with the clock and the operating system around it."""

from __future__ import annotations

import math
import os
import signal
import time

from kernelbox.base._errors import KernelBoxError, attach_result
from kernelbox.host import _death
from kernelbox.host._process import DIRECT_INTERRUPT
from kernelbox.wire._execution import Execution
from kernelbox.wire._messages import Answer, Ask, Execute, Interrupt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from kernelbox.core._kernels import Kernels
    from kernelbox.core._pool import AnyConnection
    from kernelbox.host._record import KernelRecord
    from kernelbox.wire._execution import Event, Order
    from kernelbox.wire._results import ExecutionResult

# poll(2) takes milliseconds as an int; an execution may be given more time than fits.
_LONGEST_WAIT = 24 * 3600.0


def run(kernels: Kernels, record: KernelRecord, code: str, *, timeout: float | None, **options: Any) -> ExecutionResult:
    """Runs a cell to its end."""
    steps = drive(kernels, record, code, timeout=timeout, **options)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: ExecutionResult = stop.value
            return result


def drive(
    kernels: Kernels, record: KernelRecord, code: str, *, timeout: float | None, **options: Any
) -> Generator[Event, Answer | None, ExecutionResult]:
    """Runs a cell, yielding events; the generator's return value is the result.

    What is sent back for an Ask answers it; without an answer it is rejected. If the caller stops before the end, the
    cell is interrupted and waited for: nothing runs on unseen.
    """
    limit = kernels.config.output_char_limit
    request = Execute(os.urandom(8).hex(), code, text_limit=max(0, limit), **options)
    execution = Execution(request, timeout=timeout, now=time.monotonic())
    try:
        connection = kernels.connect(record)
    except OSError:
        execution.died(find_cause(kernels, record, None), now=time.monotonic())
        assert execution.result is not None
        return execution.result
    connection.send(request)
    try:
        while execution.result is None:
            yield from _step(kernels, record, connection, execution)
    except KeyboardInterrupt as exc:
        _stop(kernels, record, connection, execution)
        attach_result(exc, execution.result)
        raise
    finally:
        if execution.result is None:
            _stop(kernels, record, connection, execution)
        kernels.release(record, connection)
    return execution.result


def _step(
    kernels: Kernels, record: KernelRecord, connection: AnyConnection, execution: Execution
) -> Generator[Event, Answer | None, None]:
    """Waits for what comes next: messages, the end of the kernel, or the deadline."""
    wait = None if execution.due == math.inf else min(execution.due - time.monotonic(), _LONGEST_WAIT)
    messages, now = connection.receive(wait), time.monotonic()
    # All are taken before any is passed on: a caller who leaves now must not take the end of the cell with him.
    for event in [event for message in messages for event in execution.receive(message, now=now)]:
        answer = yield event
        if isinstance(event, Ask):
            connection.send(answer or Answer(event.id, event.ask, False, "nobody is there to answer"))
    if execution.result is not None:
        return
    if connection.ended:
        yield from bury(kernels, record, connection, execution)
        return
    order = next_order(connection, execution)
    if order is not None:
        yield from obey(order, kernels, record, connection, execution)


def bury(kernels: Kernels, record: KernelRecord, connection: AnyConnection, execution: Execution) -> list[Event]:
    """Ends an execution whose kernel has died; returns the events of what it had written and not sent."""
    cause = find_cause(kernels, record, connection, execution.farewell)
    leftovers = _death.read_leftovers(connection.directory, connection.process, execution.request.id)
    events = execution.recover(leftovers)
    execution.died(cause, now=time.monotonic())
    return events


def next_order(connection: AnyConnection, execution: Execution) -> Order | None:
    """Returns what must be done because time has passed."""
    now = time.monotonic()
    if now >= execution.due and not execution.started:
        # The kernel cannot say so while a cell holds its interpreter, but its state file does.
        state = _death.read_state(connection.directory)
        execution.started = state is not None and state.running == execution.request.id
    return execution.tick(now=now)


def obey(
    order: Order, kernels: Kernels, record: KernelRecord, connection: AnyConnection, execution: Execution
) -> list[Event]:
    """Does what an execution orders; returns the events of what came to light by it."""
    events: list[Event] = []
    match order:
        case "interrupt":
            connection.process.signal(signal.SIGCONT)  # it may have been stopped
            connection.send(Interrupt(execution.request.id))
        case "interrupt harder":
            _death.aim(connection.directory, execution.request.id)
            connection.send(Interrupt(execution.request.id, harder=True))
            if record.engine == "kernelbox":  # to others it is a signal like any, and ends them
                connection.process.signal(DIRECT_INTERRUPT)
        case "kill":
            failure = ""
            try:
                kernels.restart(record.kernel_id, reason="restarted: a cell did not stop when interrupted")
            except KernelBoxError as exc:
                failure = str(exc)
            leftovers = _death.read_leftovers(connection.directory, connection.process, execution.request.id)
            events = execution.recover(leftovers)
            execution.killed(now=time.monotonic(), failure=failure)
            connection.close()
        case "abandon":
            connection.close()
    return events


def _stop(kernels: Kernels, record: KernelRecord, connection: AnyConnection, execution: Execution) -> None:
    """Ends an execution that its caller has left, by the same ladder as a timeout."""
    order = execution.cancel(now=time.monotonic())
    if order is not None:
        obey(order, kernels, record, connection, execution)
    while execution.result is None:
        for _ in _step(kernels, record, connection, execution):
            continue  # what it asks is rejected


def find_cause(kernels: Kernels, record: KernelRecord, connection: AnyConnection | None, farewell: str = "") -> str:
    """Returns why the kernel is gone, in words."""
    from kernelbox.core._kernels import process_of
    from kernelbox.host._process import Process

    process = connection.process if connection else process_of(record)
    return _death.find_cause(kernels.store.directory(record.kernel_id), process or Process(0, -1), farewell)
