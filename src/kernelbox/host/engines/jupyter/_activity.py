"""What the state file of a Jupyter kernel says: the clients write it, because the kernel knows nothing of it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from kernelbox.host.store._state_file import read_state, write_state
from kernelbox.wire import _kernel_state as _state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kernelbox.host.store._kernel_directory import KernelDirectory


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether a cell runs, and for how many seconds none has; None if that is not known."""

    busy: bool
    unused_for: float | None


def read_activity(directory: KernelDirectory) -> Activity:
    """Returns what the state file says; to the first in the queue, `busy` means that a client ended before its cell."""
    state = read_state(directory)
    if state is None:
        return Activity(busy=False, unused_for=None)
    return Activity(busy=state.activity == "busy", unused_for=time.time() - state.last_used)


def write_activity(directory: KernelDirectory, activity: Literal["idle", "busy"], execution_id: str = "") -> None:
    """Writes what the kernel is doing; only the first in the queue of clients may."""
    now, busy = time.time(), activity == "busy"
    before = read_state(directory)
    header = _state.HEADER.pack(
        _state.MAGIC,
        _state.BUSY if busy else _state.IDLE,
        min((before.executions if before else 0) + busy, _state.MOST_EXECUTIONS),
        now if busy else 0.0,
        now,
        os.getpid() if busy else 0,
        _state.target(execution_id),
        _state.target(""),
    )
    write_state(directory, header)
