"""How a template makes the process of a kernel: the forker of plain kernels, and the requests for processes."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelbox.guest._descriptors import Descriptors
from kernelbox.wire._messages import Spawn

if TYPE_CHECKING:
    from kernelbox.guest.birth._child_kernel import ChildKernel
    from kernelbox.guest.birth._specialize import SandboxEntry


class CannotFork(Exception):
    """Raised when a process cannot be made; it says why."""


class ForkerGone(Exception):
    """Raised when a forker can make no more processes, and another template must be started."""


@dataclass(slots=True)
class ForkRequest:
    """A request for a kernel that has not been forked yet, and the opener that waits for the answer."""

    spawn: Spawn
    given: Descriptors
    """What came with the request, and what is opened for the new process."""
    opener: socket.socket
    first: int = 0
    """The first process of its sandbox, if it has one."""
    fault: str = ""
    """Why there is no sandbox for it."""


class Forker:
    """Forks this process, and nothing else. Others need something first, which may take a while: a request waits."""

    sandboxed = False
    # The descriptors that stay open in the template for each kernel: its two pipes, its directory, its lifeline.
    files_per_kernel = 4
    fault = ""
    """Why no process can be made here; "" if it can."""

    def start(self) -> None:
        """Gets ready; called once, when all modules are imported and no kernel has been forked."""

    def stop(self) -> None:
        """Makes no more processes. Openers that wait get no answer."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return 0

    @property
    def watched(self) -> tuple[int, ...]:
        """Descriptors that become readable when `take` has something new."""
        return ()

    def ask(self, request: ForkRequest) -> bool:
        """Prepares for a process; returns whether it can be forked at once. Raises ForkerGone."""
        return True

    def take(self) -> ForkRequest:
        """Returns a request that has waited, and whose process can be forked now. Raises ForkerGone."""
        raise AssertionError("no request waits here")

    def fork(self, request: ForkRequest) -> int:
        """Forks, and returns as fork(2) does; raises OSError or CannotFork."""
        return os.fork()

    def entry(self, request: ForkRequest) -> SandboxEntry | None:
        """Returns, in the child, how it enters its sandbox; None if it has none."""
        return None

    def note(self, kernel: ChildKernel) -> None:
        """Takes note of a kernel that is ready."""

    def give_up(self, request: ForkRequest) -> None:
        """Forgets what was prepared for a process that is not forked."""
