"""What makes a process one particular kernel: pid, pipes, listening socket, state file. A copy needs new ones."""

from __future__ import annotations

import mmap
import socket
from _socket import socket as Socket
from dataclasses import dataclass

from kernelbox.guest._stdlib import contextlib, os, select
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())


@dataclass(slots=True)
class Identity:
    """What makes this process one particular kernel.

    `outputs` are the read ends of the pipes behind descriptors 1 and 2, `inputs` their write ends, kept to restore
    these descriptors when a cell has closed them. `keeper` is the pid of the process that forked this one; in a
    sandbox, where it has no pid, `lifeline` is a pipe that ends with it. `alive` is the pipe that keeps the first
    process of the sandbox alive. `runner` leads to the runner of a guarded kernel, whose pid is `runner_pid`.
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
    lifeline: int | None = None
    alive: int | None = None
    runner: Socket | None = None
    runner_pid: int = 0

    def say_why(self, reason: str) -> None:
        """Notes why the process is about to end by itself, for clients that are not connected."""
        self.memory[_state.HEADER.size : _state.SIZE] = _state.farewell(reason)

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
