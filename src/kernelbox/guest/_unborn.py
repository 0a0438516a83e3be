"""A child of a template that has not reported yet: a kernel, or the maker of a sandbox and the kernel in it."""

from __future__ import annotations

import os
import select
import socket
from dataclasses import dataclass

from kernelbox.guest._descendants import start_time
from kernelbox.guest._keeper import Keeper
from kernelbox.guest._kept import Kept
from kernelbox.wire._messages import Spawn


@dataclass(slots=True)
class Unborn:
    """A child that has been forked and has not reported yet, and the opener who waits for it."""

    forked: int
    client: socket.socket
    request: Spawn
    state: int
    """A copy of its state file's descriptor, if its limits are to be looked after; -1 if not."""
    kept: Kept
    maker: int
    """Where the maker of a sandbox tells which processes it has made, and which are our children when it ends; -1 if
    there is none, or it has told."""
    pid: int = 0
    """The kernel; 0 while it is not known."""

    def take_in(self, keeper: Keeper) -> None:
        """Has the child kept: a kernel at once, the maker of a sandbox until it has told of its kernel."""
        if self.maker < 0:
            self._keep(keeper, self.forked)
        else:
            keeper.of_sandboxes.add(self.forked)

    @property
    def has_been_told_of(self) -> bool:
        """Whether the maker of a sandbox has said something that has not been heard, or has ended."""
        if self.maker < 0:
            return False
        poller = select.poll()
        poller.register(self.maker, select.POLLIN)
        return bool(poller.poll(0))

    def meet(self, keeper: Keeper) -> None:
        """Gets to know the kernel that a maker has made, and its first process.

        It is told before the kernel reports, so this does not wait long; not at all if the maker has ended before.
        """
        from kernelbox.guest._confine import MADE

        if self.maker < 0:
            return
        told = os.read(self.maker, MADE.size)
        os.close(self.maker)
        self.maker = -1
        if len(told) == MADE.size:
            self.kept.first, kernel = MADE.unpack(told)
            self.kept.start_time, self.kept.maker = start_time(kernel), self.forked
            keeper.of_sandboxes.add(self.kept.first)
            self._keep(keeper, kernel)

    def _keep(self, keeper: Keeper, pid: int) -> None:
        self.pid = pid
        keeper.kernels[pid] = self.kept
