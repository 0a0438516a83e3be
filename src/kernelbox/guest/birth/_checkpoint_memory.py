"""The memory that checkpoints have for themselves: their keeper measures it for hosts, and keeps it within a limit.

The system looks at each page to tell. A child of the keeper waits for that, so neither the keeper nor the maker of a
checkpoint does. Spares share the memory of their checkpoints, which do without them meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from kernelbox.guest._descriptors import close
from kernelbox.guest._keeper_link import send_packet
from kernelbox.guest._process_tree import children, session_of
from kernelbox.wire._framing import encode
from kernelbox.wire._layout import EVICTED, LAST_CHECKPOINT
from kernelbox.wire._messages import Measure, Measured

if TYPE_CHECKING:
    from kernelbox.guest.birth._keeper import Keeper

# Seconds from the making of a checkpoint until all are measured: what its maker does next goes first.
_DELAY = 0.1

# Measuring takes at most this part of the time: there are other kernels, and checkpoints should have spares.
_DUTY = 0.1

# How much it gives way to what kernels do, if no host waits for it.
_NICENESS = 10

# Seconds until all spares have ended, which takes milliseconds. Then less is found than there is.
_PATIENCE = 5.0

# Lines about dropped checkpoints, and bytes of one. Only messages depend on them, so only the last are kept.
_MOST_EVICTED = 200
_LONGEST_LINE = 40

# More than the figures of a kernel's checkpoints take.
_LONGEST_ANSWER = 65536


@dataclass(frozen=True, slots=True)
class _Measurement:
    """What a child of the keeper finds out, and the host that waits for it, if any."""

    kernel_id: str
    limit: int
    host: socket.socket | None
    began: float


class CheckpointMemory:
    """Measures the checkpoints of a keeper's kernels, and drops the oldest where all together exceed a limit."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._due: dict[str, tuple[float, int]] = {}  # when to measure the checkpoints of a kernel, and their limit
        self._rests_until = 0.0
        self._running: dict[int, _Measurement] = {}  # by the descriptor that tells what was found

    def __repr__(self) -> str:
        return f"<CheckpointMemory due={len(self._due)} running={len(self._running)}>"

    @property
    def watched(self) -> list[int]:
        """What becomes readable when a measurement is over."""
        return list(self._running)

    @property
    def descriptors(self) -> list[int]:
        """All that is open here, for a fork to close."""
        return [*self._running, *(each.host.fileno() for each in self._running.values() if each.host is not None)]

    @property
    def due(self) -> float:
        """When to look next."""
        if self._running or not self._due:
            return math.inf
        return max(self._rests_until, min(when for when, _ in self._due.values()))

    def expect(self, kernel_id: str, limit: int) -> None:
        """Has the checkpoints of a kernel measured soon, because one more was made."""
        when, _ = self._due.get(kernel_id, (time.monotonic() + _DELAY, 0))
        self._due[kernel_id] = when, limit

    def look(self) -> None:
        """Begins to measure the checkpoints that are due, of one kernel at a time, if they could exceed their limit."""
        if self.due > time.monotonic():
            return
        kernel_id = min(self._due, key=lambda each: self._due[each])
        _, limit = self._due.pop(kernel_id)
        with contextlib.suppress(OSError):  # too many files are open, even to import that
            from kernelbox.usage._processes import anonymous_bytes  # few kernels have checkpoints

            # The newest is not counted: it has nothing for itself yet.
            if sum(map(anonymous_bytes, list(self._find(kernel_id).values())[:-1])) > limit:
                self.measure(kernel_id, limit, None)

    def measure(self, kernel_id: str, limit: int, host: socket.socket | None) -> None:
        """Begins to measure the checkpoints of a kernel. If a host waits, it gets the answer; `limit` 0 is none."""
        try:
            tells = self._begin(kernel_id, host)
        except OSError:  # too many files are open, or there are too many processes
            _answer(host, Measured())
        else:
            self._running[tells] = _Measurement(kernel_id, limit, host, time.monotonic())

    def _begin(self, kernel_id: str, host: socket.socket | None) -> int:
        """Forks the child that measures, and returns what it answers on; raises OSError.

        If no host waits, the newest keeps its spare: it has nothing for itself yet, and is the next to be used.
        """
        found = self._find(kernel_id)
        measured = list(found) if host is not None else list(found)[:-1]
        kernel = self._keeper.adoptions.find(kernel_id)
        others = [pid for number, pid in found.items() if number not in measured]
        others += [spare for pid in others for spare in self._spares(pid)]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            tells, told = os.pipe()
            try:
                asked = sum(self._ask(found[number], kernel_id, theirs.fileno()) for number in measured)
                pid = os.fork()
                if pid == 0:
                    theirs.close()
                    _measure({number: found[number] for number in measured}, kernel, others, (ours, asked), told, host)
            except OSError:
                close(tells)
                raise
            finally:
                close(told)
        self._keeper.helpers.add(pid)
        return tells

    def heed(self, descriptor: int) -> bool:
        """Takes what was found, and acts on it; returns whether this was such a descriptor."""
        running = self._running.pop(descriptor, None)
        if running is None:
            return False
        said = os.read(descriptor, _LONGEST_ANSWER)
        close(descriptor)
        now = time.monotonic()
        self._rests_until = now + (now - running.began) / _DUTY
        found: dict[str, int] = json.loads(said) if said else {}  # none if it was killed
        together = found.pop("together", 0)
        checkpoints = self._find(running.kernel_id)
        if running.limit and together > running.limit and len(checkpoints) > 1:
            gone = [number for number in found if int(number) not in checkpoints]  # and still counted
            if not gone:
                gone = [str(min(checkpoints))]
                self._keeper.adoptions.release(running.kernel_id, min(checkpoints), why="memory")
            if together - sum(found.pop(number, 0) for number in gone) > running.limit:
                self._due[running.kernel_id] = now, running.limit  # how much that has given back is not known
        if running.host is not None:
            _answer(running.host, Measured(found))
        return True

    def _find(self, kernel_id: str) -> dict[int, int]:
        """Returns the pids of the checkpoints of a kernel that are to stay, by number, oldest first."""
        kernels = self._keeper.kernels.items()
        found = {kept.checkpoint: pid for pid, kept in kernels if kept.kernel_id == kernel_id and kept.is_frozen}
        return dict(sorted(found.items()))

    def _spares(self, checkpoint: int) -> list[int]:
        first = self._keeper.kernels[checkpoint].first
        return [pid for pid in children(first or "self") if pid != checkpoint and session_of(pid) == checkpoint]

    def _ask(self, checkpoint: int, kernel_id: str, fd: int) -> bool:
        """Has a checkpoint do without its spare; returns whether it will."""
        try:
            send_packet(self._keeper.kernels[checkpoint].held["link"], Measure(kernel_id), [fd])
        except OSError:  # it is just ending, or a cell has filled the link
            return False
        return True


def note_evicted(directory: int, number: int, why: str, *, told: bool) -> None:
    """Notes in a kernel's directory that a checkpoint was dropped. `told` says that the maker of another learns of it.

    A line has the number, why, and the last number that had been given, or 0 if the maker learns of it.
    """
    with contextlib.suppress(OSError):
        last = "0" if told else _read(directory, LAST_CHECKPOINT).strip() or "0"
        lines = [*_read(directory, EVICTED).splitlines(), f"{number} {why} {last}"]
        new = f"{EVICTED}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=directory)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=directory)
        with open(fd, "w") as file:
            file.writelines(f"{line}\n" for line in lines[-_MOST_EVICTED:])
        os.rename(new, EVICTED, src_dir_fd=directory, dst_dir_fd=directory)


def _read(directory: int, name: str) -> str:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return ""
    with open(fd, errors="replace") as file:
        return file.read(_MOST_EVICTED * _LONGEST_LINE)


def _answer(host: socket.socket | None, measured: Measured) -> None:
    if host is not None:
        with host, contextlib.suppress(OSError):  # it has gone
            host.sendall(encode(measured))


def _measure(
    checkpoints: dict[int, int],
    kernel: int,
    others: list[int],
    asked: tuple[socket.socket, int],
    told: int,
    host: socket.socket | None,
) -> NoReturn:
    """Measures processes in a child of the keeper, which ends with it.

    The system does not tell who shares a page, only how many do. All together have at least what each has alone. They
    also have at least what they and the kernel have without what the kernel has, and less if branches share that too.
    """
    try:
        from kernelbox.usage._processes import CopiedMemory

        signal.set_wakeup_fd(-1)
        if host is None:
            os.nice(_NICENESS)
        waits, count = asked
        keep = {waits.fileno(), told}
        close(*({number for number in map(int, os.listdir("/proc/self/fd")) if number > 2} - keep))
        waits.settimeout(_PATIENCE)
        with contextlib.suppress(TimeoutError):
            while count > 0 and (said := waits.recv(count)):
                count -= len(said)
        of_kernel = CopiedMemory(kernel)
        found = {number: CopiedMemory(pid) for number, pid in checkpoints.items()}
        shares = sum(each.share for each in (of_kernel, *found.values(), *map(CopiedMemory, others)))
        private = {str(number): each.private for number, each in found.items()}
        together = max(sum(private.values()), shares - of_kernel.anonymous)
        os.write(told, json.dumps({**private, "together": together}).encode())
    finally:
        os._exit(0)
