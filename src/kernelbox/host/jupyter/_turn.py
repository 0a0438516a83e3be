"""Whose turn it is to run a cell on a Jupyter kernel, and the state file that says so.

A request that a Jupyter kernel has queued cannot be withdrawn from it. So clients queue outside, at a file lock: a cell
whose time is up before its turn came has truly never run, and when a client dies the lock passes on by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time

from kernelbox.host._state_file import read_state
from kernelbox.wire import _state
from kernelbox.wire._layout import STATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

_TURN = "turn"


class Turn:
    """A place in the queue; its descriptor becomes readable when the turn has come."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, _TURN)
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._rope, False)
        self._claim: _Claim | None = None
        self._mutex = threading.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Turn {'held' if self.held else 'asked for' if self._claim else 'free'}>"

    def fileno(self) -> int:
        return self._bell

    @property
    def held(self) -> bool:
        return self._claim is not None and self._claim.held

    def ask(self) -> None:
        """Joins the queue."""
        assert self._claim is None, "a connection carries one cell at a time"
        self._claim = _Claim(self._path, self.ring)

    def give_back(self) -> None:
        """Leaves the queue, or lets the next one have the turn."""
        if self._claim is not None:
            self._claim.drop()
            self._claim = None

    def ring(self) -> None:
        """Makes the descriptor readable; from any thread, and of no effect once closed."""
        with self._mutex, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.write(self._rope, b"\0")

    def hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)

    def close(self) -> None:
        self.give_back()
        with self._mutex:
            if not self._closed:
                self._closed = True
                os.close(self._bell)
                os.close(self._rope)


class _Claim:
    """A lock on the file, waited for in a thread: flock(2) can be had at once or slept for, not polled."""

    def __init__(self, path: str, ring: Callable[[], None]) -> None:
        self.held = False
        self._ring = ring
        self._dropped = False
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.held = True
        except BlockingIOError:
            threading.Thread(target=self._wait, name="kernelbox-turn", daemon=True).start()

    def drop(self) -> None:
        with self._mutex:
            self._dropped = True
            if self.held:
                self._free()  # else the thread does, as soon as it has got what nobody wants any more

    def _wait(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._mutex:
            if self._dropped:
                self._free()
            else:
                self.held = True
                self._ring()

    def _free(self) -> None:
        self.held = False
        if self._pid == os.getpid():  # in a fork it is our parent's turn still
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # a fork may have the descriptor too: closing is not enough
        os.close(self._fd)


def write_activity(directory: str, activity: Literal["idle", "busy"], execution_id: str = "") -> None:
    """Says in the state file what the kernel is doing; only the client whose turn it is may."""
    now, busy = time.time(), activity == "busy"
    before = read_state(directory)
    header = _state.HEADER.pack(
        _state.MAGIC,
        _state.BUSY if busy else _state.IDLE,
        (before.executions if before else 0) + busy,
        now if busy else 0.0,
        now,
        _state.target(execution_id),
        _state.target(""),
    )
    with contextlib.suppress(OSError):  # a directory that is gone has no state
        fd = os.open(os.path.join(directory, STATE), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, header, 0)
        finally:
            os.close(fd)


def is_busy(directory: str) -> bool:
    """Tells what the state file says; to whoever has just got the turn, that the last one died while its cell ran."""
    state = read_state(directory)
    return state is not None and state.activity == "busy"


def end_queue(directory: str) -> None:
    """Makes the next claim the first of a new queue; those in the old one wait for a process that is gone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, _TURN))
