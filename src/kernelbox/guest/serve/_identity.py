"""What makes a process one particular kernel: pid, pipes, listening socket, state file. A copy needs new ones."""

from __future__ import annotations

import mmap
import socket
from _socket import socket as Socket
from dataclasses import dataclass

from kernelbox.guest._descriptors import Descriptors, put_behind
from kernelbox.guest._stdlib import contextlib, os, select
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# The host, which binds the socket, uses the same number.
_BACKLOG = 128

# What makes a copy another kernel, in the order of the numbers that it takes.
_RENEWED = ("stdout", "stderr", "stdout writer", "stderr writer", "cells", "older cells", "listener", "state", "log")


@dataclass(slots=True)
class Identity:
    """What makes this process one particular kernel.

    `outputs` are the read ends of the pipes behind descriptors 1 and 2, `inputs` their write ends, kept to restore
    these descriptors when a cell has closed them. `cells` are the files of the log of its cells, the newer one first.
    `keeper` is the pid of the process that forked this one; in a sandbox, where it has no pid, `lifeline` is a pipe
    that ends with it. `alive` is the pipe that keeps the first process of the sandbox alive. `runner` leads to the
    runner of a guarded kernel, whose pid is `runner_pid`. `link` leads to the keeper, for copies of the kernel. A
    kernel that is `watched` must not outlive its keeper.
    """

    kernel_id: str
    directory: str
    pid: int
    keeper: int
    listener: socket.socket
    outputs: tuple[int, int]
    inputs: tuple[int, int]
    state_file: int
    memory: mmap.mmap
    cells: tuple[int, int]
    log: int = -1
    link: int = -1
    watched: bool = False
    lifeline: int | None = None
    alive: int | None = None
    runner: Socket | None = None
    runner_pid: int = 0

    def say_why(self, reason: str) -> None:
        """Notes why the process is about to end by itself, for clients that are not connected."""
        self.memory[_state.HEADER.size : _state.COUNT_AT] = _state.farewell(reason)

    @property
    def has_keeper(self) -> bool:
        """Whether the process that forked this one is still there."""
        if self.lifeline is None:
            return os.getppid() == self.keeper
        poller = select.poll()
        poller.register(self.lifeline, 0)
        return not poller.poll(0)

    @property
    def is_reachable(self) -> bool:
        """Whether clients can find the kernel: its directory, and in it the state file, is still there."""
        return os.fstat(self.state_file).st_nlink > 0

    @property
    def is_sandboxed(self) -> bool:
        return self.lifeline is not None

    @property
    def descriptors(self) -> list[int]:
        """What the kernel itself has open, as far as it is named here."""
        others = [each for each in (self.log, self.link, self.lifeline, self.alive) if each is not None]
        return [0, 1, 2, *self.outputs, *self.inputs, *self.cells, self.listener.fileno(), self.state_file, *others]

    def let_go(self) -> None:
        """Closes, in a copy, what the original reads and writes."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in (*self.outputs, *self.inputs, self.listener.fileno()):
            os.dup2(null, number, False)
        for number in (1, 2):
            os.dup2(null, number, True)
        os.close(null)
        self.pid = os.getpid()

    def renew(self, kernel_id: str, directory: str, given: Descriptors) -> None:
        """Makes a copy another kernel, behind the same numbers."""
        self.kernel_id, self.directory, self.pid = kernel_id, directory, os.getpid()
        for number, name in zip((1, 2), ("stdout writer", "stderr writer"), strict=True):
            os.dup2(given[name], number, True)
        numbers = (*self.outputs, *self.inputs, *self.cells, self.listener.fileno(), self.state_file, self.log)
        for number, name in zip(numbers, _RENEWED, strict=True):
            put_behind(number, given.take(name))
        self.listener.listen(_BACKLOG)  # again: SO_PEERCRED shows hosts the last process that called it
        self.listener.setblocking(False)
        self.memory = mmap.mmap(self.state_file, 0)

    def close_after_fork(self) -> None:
        """Closes, in a forked child of the kernel, what must end with the kernel."""
        if self.alive is not None:
            with contextlib.suppress(OSError):  # a cell may have closed it
                os.close(self.alive)

    def restore_descriptors(self) -> None:
        """Reopens descriptors 0 to 2 if a cell closed them, before something else takes their numbers.

        Programs make them non-blocking for themselves, and all that share them would fail to write.
        """
        for fd in range(3):
            try:
                if not os.get_blocking(fd):
                    os.set_blocking(fd, True)
            except OSError:
                source = os.open(os.devnull, os.O_RDONLY) if fd == 0 else os.dup(self.inputs[fd - 1])
                if source == fd:
                    os.set_inheritable(fd, True)
                else:
                    os.dup2(source, fd)
                    os.close(source)
