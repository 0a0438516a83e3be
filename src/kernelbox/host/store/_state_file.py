"""The state file of a kernel: it tells hosts what the kernel does, and the kernel which execution a signal is for."""

from __future__ import annotations

import os
import time

from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._layout import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory


def create_state(place: Place, name: str = STATE) -> int:
    """Makes the file for a kernel that is about to start; returns its descriptor.

    It is a new file each time, because the previous process may still have the old one mapped.
    """
    place.remove_tree(name)
    fd = place.create(name)
    try:
        os.write(fd, bytes(_state.SIZE))  # a full disk must fail here, not as SIGBUS in the kernel
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_state(directory: KernelDirectory) -> _state.KernelState | None:
    """Returns the state that a kernel reports."""
    try:
        with directory.open() as place:
            return _state.parse(place.head(STATE, _state.SIZE))
    except OSError:
        return None


def write_state(directory: KernelDirectory, data: bytes, at: int = 0) -> None:
    """Writes into the file, if it exists."""
    try:
        with directory.open() as place:
            fd = place.open_existing(STATE)
    except OSError:
        return  # the kernel is gone
    try:
        os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def write_activity(directory: KernelDirectory, activity: Literal["idle", "busy"], execution_id: str = "") -> None:
    """Writes what a Jupyter kernel does, which does not know the file. Only the first client in its queue may do so."""
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


def aim(directory: KernelDirectory, execution_id: str) -> None:
    """Notes which execution a signal is about to interrupt."""
    write_state(directory, _state.target(execution_id), _state.TARGET_AT)
