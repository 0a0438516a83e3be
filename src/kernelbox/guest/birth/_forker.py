"""How a template makes the process of a kernel: a forker for each kind, and the requests that it is asked for."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

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


class Forker(Protocol):
    """Makes processes of one kind. What it needs before it can fork may take a while: then a request waits."""

    sandboxed: bool
    files_per_kernel: int
    """How many descriptors stay open in the template for each kernel."""
    fault: str
    """Why no process can be made here; "" if it can."""

    def start(self) -> None:
        """Gets ready; called once, when all modules are imported and no kernel has been forked."""

    def stop(self) -> None:
        """Makes no more processes. Openers that wait get no answer."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""

    @property
    def watched(self) -> tuple[int, ...]:
        """Descriptors that become readable when `take` has something new."""

    def ask(self, request: ForkRequest) -> bool:
        """Prepares for a process; returns whether it can be forked at once. Raises ForkerGone."""

    def take(self) -> ForkRequest:
        """Returns a request that has waited, and whose process can be forked now. Raises ForkerGone."""

    def fork(self, request: ForkRequest) -> int:
        """Forks, and returns as fork(2) does; raises OSError or CannotFork."""

    def entry(self, request: ForkRequest) -> SandboxEntry | None:
        """Returns, in the child, how it enters its sandbox; None if it has none."""

    def note(self, kernel: ChildKernel) -> None:
        """Takes note of a kernel that is ready."""

    def give_up(self, request: ForkRequest) -> None:
        """Forgets what was prepared for a process that is not forked."""


class PlainForker:
    """Forks this process, and nothing else."""

    sandboxed = False
    # Of each kernel: what both of its pipes are read by, its directory, its lifeline.
    files_per_kernel = 4
    fault = ""

    waiting = 0
    watched: tuple[int, ...] = ()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def ask(self, request: ForkRequest) -> bool:
        return True

    def take(self) -> ForkRequest:
        raise AssertionError("no request waits here")

    def fork(self, request: ForkRequest) -> int:
        return os.fork()

    def entry(self, request: ForkRequest) -> SandboxEntry | None:
        return None

    def note(self, kernel: ChildKernel) -> None: ...

    def give_up(self, request: ForkRequest) -> None: ...
