"""What a template has been asked for and has not answered yet: a request, and the child that was forked for it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from kernelbox.guest._descriptors import close_each
from kernelbox.guest.birth._child_kernel import ChildKernel
from kernelbox.wire._messages import Spawn


@dataclass(slots=True)
class PendingRequest:
    """A request for a kernel, the descriptors that came with it, and the opener who waits for the answer."""

    request: Spawn
    fds: list[int]
    client: socket.socket
    alive: int = -1
    """What keeps the first process of its sandbox alive; -1 if there is none."""
    lifeline: tuple[int, int] = (-1, -1)
    """A pipe that ends with this process, for a kernel in a sandbox. One for each: cells can write to it, too."""

    @property
    def confinement(self) -> int:
        """What the kernel is confined to, if it is to be sandboxed."""
        return self.fds[-1 - 2 * self.request.guard]

    def close(self) -> None:
        """Closes the descriptors, in the end."""
        close_each(*self.fds, self.alive, *self.lifeline)


@dataclass(slots=True)
class PendingChild:
    """A child that has been forked and has not reported yet, and the opener who waits for it."""

    pid: int
    client: socket.socket
    request: Spawn
    state: int
    """A copy of its state file's descriptor, if its limits are to be looked after; -1 if not."""
    kept: ChildKernel
