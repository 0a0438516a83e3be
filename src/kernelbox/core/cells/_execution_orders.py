"""What both shells do for an execution: obey its orders, and conclude it when its kernel is gone.

Nothing here waits for the kernel's next message, which each shell does in its own way.
"""

from __future__ import annotations

import time

from kernelbox.wire._results import OutputItem

# The output that is kept of a cell that is being stopped, or that no task awaits: at most this many events, the last
# ones, and characters of their pictures and text.
_MISSED = 1000
_MISSED_CHARACTERS = 64 * 1024 * 1024

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.core._kernel_handle import KernelHandle
    from kernelbox.host.engines._interface import Connection
    from kernelbox.wire._execution import Event, Execution
    from kernelbox.wire._timeout_ladder import Order


def next_order(connection: Connection, execution: Execution) -> Order | None:
    """Returns what must be done because time has passed."""
    now = time.monotonic()
    if now < execution.ladder.due or execution.started:
        return execution.tick(now=now)
    return execution.tick(now=now, holder=connection.holder(execution.request.id))


def obey(order: Order, kernel: KernelHandle, connection: Connection, execution: Execution) -> list[Event]:
    """Carries out an order of an execution on its kernel; returns the events that result."""
    events: list[Event] = []
    match order:
        case "interrupt":
            connection.interrupt(execution.request.id)
        case "interrupt harder":
            connection.interrupt(execution.request.id, harder=True)
        case "kill":
            failure, set_back = kernel.replace_process("restarted: a cell did not stop when interrupted")
            events = _read_last(connection, execution)
            events += execution.recover(connection.leftovers(execution.request.id))
            execution.killed(now=time.monotonic(), failure=failure, set_back=set_back)
            connection.close()
        case "abandon":
            connection.close()
    return events


def _read_last(connection: Connection, execution: Execution) -> list[Event]:
    """Returns what a killed kernel had sent, and we had not read while we waited for its end."""
    events: list[Event] = []
    while messages := connection.receive(0.0):
        events += execution.receive_all(messages, now=time.monotonic())
    return [event for event in events if isinstance(event, OutputItem)]


def drop_oldest(events: list[Any]) -> None:
    """Keeps only the last events of a cell that no caller waits for, within limits."""
    room, kept = _MISSED_CHARACTERS, 0
    for event in reversed(events[-_MISSED:]):
        if isinstance(event, OutputItem):
            room -= len(event.text or "") + sum(len(value) for value in event.data.values() if isinstance(value, str))
        if room < 0:
            break
        kept += 1
    del events[: len(events) - kept]


def conclude_end(kernel: KernelHandle, connection: Connection, execution: Execution) -> list[Event]:
    """Ends an execution whose connection has ended; returns the events of output that a dead kernel had not sent.

    A kernel is dead when the operating system says so: a cell can find the socket of its client, and close it.
    """
    if not execution.farewell and connection.still_serves():
        return cut_off(connection, execution, "a cell has closed its client's connection")
    cause = connection.cause(execution.farewell)
    events = execution.recover(connection.leftovers(execution.request.id))
    execution.died(cause, now=time.monotonic(), set_back=kernel.come_back(cause))
    return events


def find_cut(connection: Connection, execution: Execution) -> str:
    """Returns why an execution gets no more messages although its kernel lives; "" if it may get more."""
    if connection.lacks_rest and connection.holder(execution.request.id) != "this":
        return "a cell has written half a message to its client's connection"
    return ""


def cut_off(connection: Connection, execution: Execution, reason: str) -> list[Event]:
    """Ends an execution whose result cannot arrive any more; the kernel interrupts a cell whose connection closes."""
    connection.close()
    execution.cut_off(reason, now=time.monotonic())
    return []
