"""A kernel as its keeper knows it, before and after it has reported."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelbox.guest._descriptors import Descriptors
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._layout import STATE
from kernelbox.wire._messages import Foster, Spawn

if TYPE_CHECKING:
    from kernelbox.guest.walls._limit_watch import Excess, LimitWatch


# The descriptors that the keeper holds for each kernel: its directory, the pipes of its text, the pipe on which its
# opener reports the end of the start, and its owner's lifeline. With limits: its state file, until the kernel has
# reported. In a sandbox: a descriptor to kill its first process by, which is the maker's child; what keeps that process
# alive, until the kernel alone does; what shows the kernel that we are there. For copies: the link on which they
# present themselves, and the socket at which hosts ask for them; for a copy that is not our child, a descriptor of its
# process.
#
# The keeper watches those that become readable when the opener has reported or ended, the owner has ended, a copy
# presents itself, a process that is not our child has ended, or a host asks for a copy.
WATCHED = frozenset({"opening", "lifeline", "link", "process", "door"})
SANDBOX = ("first process", "alive", "here")
HELD = ("directory", "stdout", "stderr", "opening", "lifeline", "state", "link", "door", *SANDBOX)


@dataclass(slots=True)
class ChildKernel:
    """A kernel that this process is the parent of."""

    kernel_id: str
    start_time: int
    entrances: dict[str, tuple[int, int] | None]
    """The device and inode of each, to notice when another file takes its place; None until the kernel has made it."""
    held: Descriptors
    """What stays open for it: see HELD."""
    first: int = 0
    """The first process of its sandbox: when that ends, the system ends all that is in there."""
    is_headless: bool = False
    """Whether its main thread had ended, and others lived, at the last check."""
    reason: str = ""
    """Why the keeper ends it."""
    watch: LimitWatch | None = None
    """What checks its limits, if it has any."""
    excess: Excess | None = None
    """The limit that it is ended for."""
    checkpoint: int = 0
    """Its number, if it is a checkpoint of the kernel."""
    expires: float = math.inf
    """When it is too old, if it is a checkpoint."""
    announced: Foster | None = None
    """The host's request, if it is a copy that is still starting."""
    shared_watch: LimitWatch | None = None
    """What checks the limits of the kernel, if this is a checkpoint of it, or an heir that waits for its place."""
    groups: list[str] = field(default_factory=list)
    """The control groups that it shares with its checkpoints."""
    execution: str | None = None
    """What it ran when an heir took its place, and its state file."""
    is_disinherited: bool = False
    """Whether it was an heir that never took its place."""

    def note_execution(self) -> None:
        """Takes note of what the kernel runs."""
        self.execution = running_execution(self.held["directory"])

    def kill_first(self) -> None:
        """Ends the first process of its sandbox, and with it everything in the sandbox, however fast it forks."""
        if "first process" in self.held:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.held["first process"], signal.SIGKILL)

    def remove_entrances(self) -> None:
        """Removes the files by which hosts find it."""
        for name in self.entrances:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.held["directory"])

    @property
    def is_frozen(self) -> bool:
        """Whether it is a checkpoint that stays: its start has come to an end, and the keeper does not end it."""
        return bool(self.checkpoint) and "opening" not in self.held and not self.reason

    @property
    def outputs(self) -> list[int]:
        """What the text of the kernel can be read from; none, if it is a program of others."""
        return [self.held[name] for name in ("stdout", "stderr") if name in self.held]

    @property
    def has_run(self) -> bool:
        """Whether it has run a cell, and runs none."""
        state = _read_state(self.held["directory"])
        return state is not None and state.executions > 0 and state.activity == "idle"

    @property
    def is_reachable(self) -> bool:
        """Whether clients can find the kernel: its directory is where it was made, with a way in."""
        try:
            directory = self.held["directory"]
            if not os.path.samestat(os.fstat(directory), os.stat(f"../{self.kernel_id}", dir_fd=directory)):
                return False
            return all(map(self._is_open, self.entrances))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # it is unknown

    def _is_open(self, entrance: str) -> bool:
        known, found = self.entrances[entrance], identify(entrance, self.held["directory"])
        if known is None:
            self.entrances[entrance] = found
            return found is not None or "opening" in self.held
        return found == known


@dataclass(slots=True)
class PendingChild:
    """A child that has been forked and has not reported yet, and the opener that waits for it."""

    pid: int
    opener: socket.socket
    spawn: Spawn
    kernel: ChildKernel
    was_spare: bool = False


def identify(name: str, directory: int) -> tuple[int, int] | None:
    """Returns the device and inode of a file in a kernel's directory; None if it is missing."""
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def running_execution(directory: int) -> str:
    """Returns the execution that a kernel runs, or ran when it ended: what it wrote last belongs to that one."""
    state = _read_state(directory)
    return state.running if state is not None else ""


def _read_state(directory: int) -> _state.KernelState | None:
    try:
        fd = os.open(STATE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    try:
        return _state.parse(os.read(fd, _state.SIZE))
    except OSError:
        return None  # a cell has put something else there
    finally:
        os.close(fd)
