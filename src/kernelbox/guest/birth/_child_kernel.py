"""A kernel as its keeper has it."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelbox.guest.walls._limit_watch import Excess, LimitWatch


@dataclass(slots=True)
class ChildKernel:
    """A kernel that this process is the parent of: its directory, the read ends of its pipes, its owner's lifeline."""

    kernel_id: str
    directory: int
    outputs: tuple[int, int]
    opening: int
    """Where its opener says that its start has come to an end; -1 when it has."""
    lifeline: int
    start_time: int
    entrances: dict[str, tuple[int, int] | None]
    """What tells each from a file that another process puts in its place; None until the kernel has made it."""
    first: int = 0
    """The first process of its sandbox: when that ends, the system ends all that is in there."""
    process: int = -1
    """A descriptor of that, by which it is killed: it is a child of the maker's, who reaps it."""
    alive: int = -1
    """What keeps it alive, as long as this process does; -1 when the kernel alone does."""
    here: int = -1
    """What tells a kernel in a sandbox that this process is still there."""
    is_headless: bool = False
    """Whether it had no main thread, and others, when its keeper looked the last time."""
    reason: str = ""
    """Why the keeper ends it."""
    watch: LimitWatch | None = None
    """What looks after its limits, if it has any."""
    excess: Excess | None = None
    """The limit that it is ended for."""

    def kill_first(self) -> None:
        """Ends the first process of its sandbox, and so all that is in there, however fast they fork."""
        if self.process >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.process, signal.SIGKILL)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.directory, *self.outputs, self.opening, self.lifeline, self.process, self.alive, self.here)

    @property
    def watched(self) -> list[int]:
        """What becomes readable when the opener has said something or ended, or the owner has."""
        return [fd for fd in (self.opening, self.lifeline) if fd >= 0]

    @property
    def is_reachable(self) -> bool:
        """Whether clients can find the kernel: its directory is where it was made, with a way in."""
        try:
            here, there = os.fstat(self.directory), os.stat(f"../{self.kernel_id}", dir_fd=self.directory)
            if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
                return False
            return all(map(self._is_open, self.entrances))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # it cannot be found out

    def _is_open(self, entrance: str) -> bool:
        known, found = self.entrances[entrance], identify(entrance, self.directory)
        if known is None:
            self.entrances[entrance] = found
            return found is not None or self.opening >= 0
        return found == known


def identify(name: str, directory: int) -> tuple[int, int] | None:
    """Returns what tells a file in a kernel's directory from any other that is put there; None if there is none."""
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino
