"""The state file of a kernel, as hosts use it: what the kernel is doing, and which execution a signal is meant for."""

from __future__ import annotations

import os

from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._layout import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory


def create_state(place: Place) -> int:
    """Makes the file, with no claims in it, before the kernel that maps it is started; returns its descriptor.

    It is a new file each time: the process before may still have the old one mapped.
    """
    place.remove_tree(STATE)
    fd = place.create(STATE)
    try:
        os.write(fd, bytes(_state.SIZE))  # really there: a full disk must show here, not as SIGBUS in the kernel
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_state(directory: KernelDirectory) -> _state.KernelState | None:
    """Returns what a kernel says of itself."""
    try:
        with directory.open() as place:
            return _state.parse(place.head(STATE, _state.SIZE))
    except OSError:
        return None


def write_state(directory: KernelDirectory, data: bytes, at: int = 0) -> None:
    """Writes into the file, if there is one."""
    try:
        with directory.open() as place:
            fd = place.open_existing(STATE)
    except OSError:
        return  # the kernel is gone
    try:
        os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def aim(directory: KernelDirectory, execution_id: str) -> None:
    """Writes down which execution a signal is about to interrupt."""
    write_state(directory, _state.target(execution_id), _state.TARGET_AT)
