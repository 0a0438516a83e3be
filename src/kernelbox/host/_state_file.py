"""The state file of a kernel, as hosts use it: what the kernel is doing, and which execution a signal is meant for."""

from __future__ import annotations

import os

from kernelbox.wire import _state
from kernelbox.wire._layout import STATE


def create_state(directory: str) -> int:
    """Makes the file, with no claims in it, before the kernel that maps it is started; returns its descriptor."""
    fd = os.open(os.path.join(directory, STATE), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, bytes(_state.SIZE))  # really there: a full disk must show here, not as SIGBUS in the kernel
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_state(directory: str) -> _state.KernelState | None:
    """Returns what a kernel says of itself."""
    try:
        fd = os.open(os.path.join(directory, STATE), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _state.parse(os.read(fd, _state.SIZE))
    finally:
        os.close(fd)


def aim(directory: str, execution_id: str) -> None:
    """Writes down which execution a signal is about to interrupt."""
    try:
        fd = os.open(os.path.join(directory, STATE), os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # the kernel is gone
    try:
        os.pwrite(fd, _state.target(execution_id), _state.TARGET_AT)
    finally:
        os.close(fd)
