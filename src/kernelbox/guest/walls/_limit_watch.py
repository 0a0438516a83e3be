"""Checks, in the keeper, the limits of one kernel that the operating system does not enforce itself.

A look reads a few files of /proc for each process. It is taken often while the kernel works, and seldom while it is
idle; what takes long is done only when the cheap numbers say that it could matter.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import signal
import time

from kernelbox.guest._descriptors import close
from kernelbox.guest._process_tree import children, session_of
from kernelbox.guest.walls._disk import Disk
from kernelbox.usage import _group_usage as _groups
from kernelbox.usage._disk_usage import Walk
from kernelbox.usage._processes import beside_resident, exact_memory, hide, look_at, shared_memory, written
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._layout import LOG, STATE

# Seconds between two looks: a process can fill some hundred megabytes in this time, or fork a few dozen times.
LOOK_EVERY = 0.05

# An idle kernel, in which threads of earlier cells may still run, is looked at once in this many times.
_IDLE_LOOKS = 8

# Looks may take this part of a processor at the most: there are other kernels to keep. How long they wait for one does
# not count: the processes of a fork bomb must not put off the look that ends them.
_DUTY = 0.2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.usage._processes import Tree
    from kernelbox.wire._messages import Foster, Spawn

# Name, limit, what was used.
Excess = tuple[str, float, float]


class LimitWatch:
    """What one kernel may use, and what it has used so far."""

    def __init__(self, spawn: Spawn | Foster, pid: int, first: int, state: int, directory: int, *, alone: bool) -> None:
        """To be made when the kernel is in its groups, and has not begun to run cells. `first` is the first process of
        its sandbox, 0 if it has none; `state` is its state file, and `directory`, which is not ours to close, where
        that is.

        `alone` says that every child of this process is the kernel's: its orphans come here, if it does not get them.
        """
        limits = spawn.limits
        joined = [group for group in spawn.groups if pid in _groups.members(group)]
        kept = {name for group in joined for name in _groups.limits(group)}
        self.groups = spawn.groups
        self.state = state
        self._directory = directory
        self._pid = pid
        self._first = first
        self._alone = alone
        self._limits = {name: amount for name, amount in limits.items() if name not in kept}
        self._group_limits = {name: limits[name] for name in kept if name in limits}
        self._clock = next((group for group in joined if _groups.cpu_seconds(group) is not None), "")
        self._inherited = look_at(pid).resident.get(pid, 0)
        self._shared_before = shared_memory() if "memory" in self._limits else 0
        self._peak = 0
        self._cpu: dict[int, float] = {}
        self._ended_cpu = 0.0
        self._disk: Disk | None = None
        if "disk" in limits:
            self._disk = Disk(Walk(spawn.cwd, but=spawn.home), spawn.disk_before, limits["disk"])
        self._oom_kills = self._oom_kills_seen = self._count_oom_kills()
        self._idle_looks = 0
        self.checkpoints: set[int] = set()
        """The frozen copies of the kernel, which count with it."""
        self.due = time.monotonic() if self._looks else float("inf")

    @property
    def _looks(self) -> bool:
        return bool(self._limits.keys() & {"memory", "cpu", "processes", "disk"})

    def look(self) -> Excess | None:
        """Returns the limit that the kernel exceeds, if any. `due` is when to look again."""
        began, began_cpu = time.monotonic(), time.process_time()
        self.due = began + LOOK_EVERY
        self._idle_looks = self._idle_looks + 1 if self._is_idle() else 0
        if self._idle_looks % _IDLE_LOOKS > 1:
            return None
        excess = self._measure()
        self.due = max(began + LOOK_EVERY, time.monotonic() + (time.process_time() - began_cpu) / _DUTY)
        return excess

    def spare(self, others: list[LimitWatch]) -> bool:
        """Tells whether another kernel that works in the same directory has filled it, and not this one."""
        if self._disk is None:
            return False
        sharing = [self, *self._sharing(others)]
        return self._disk.spare(self._pid, {each._pid: each._written() for each in sharing})

    def leave(self, others: list[LimitWatch]) -> None:
        """Keeps what this kernel has added to a directory from being taken for that of others, when it has ended."""
        for other in self._sharing(others):
            with contextlib.suppress(OSError):  # too much is open here: it may be taken for theirs
                assert other._disk is not None
                other._disk.begin_anew()
        self.close()

    def _written(self) -> float:
        """Returns the bytes that the kernel has written to disks; one that hides may have written any number."""
        pids = look_at(*self._roots()).pids
        return math.inf if hide(pids, self._pid) else written(pids)

    def _sharing(self, others: list[LimitWatch]) -> list[LimitWatch]:
        if self._disk is None:
            return []
        return [other for other in others if other._disk is not None and other._disk.place == self._disk.place]

    def find_cause(self, code: int | None) -> Excess | None:
        """Returns the limit for which the system itself has ended the kernel, if any; `code` is its exit code."""
        if code == -signal.SIGXCPU and "cpu" in self._limits:
            return "cpu", self._limits["cpu"], self._limits["cpu"]
        if "memory" in self._group_limits and code == -signal.SIGKILL and self._count_oom_kills() > self._oom_kills:
            peaks = [peak for group in self.groups if (peak := _groups.peak(group)) is not None]
            limit = self._group_limits["memory"]
            return "memory", limit, max(peaks, default=limit)
        return None

    def note_oom_kills(self) -> None:
        """Takes note of kills among the processes that the kernel has started, which it has survived.

        What was counted the last time: a kernel that has been killed since takes a moment to end.
        """
        self._oom_kills, self._oom_kills_seen = self._oom_kills_seen, self._count_oom_kills()

    def compare_with(self, original: LimitWatch) -> None:
        """Counts what a branch has from its original as the original does: as its own, but for the template's part."""
        self._inherited = original._inherited

    def pass_on(self, pid: int, state: int, directory: int) -> LimitWatch:
        """Returns the watch of the process that takes the place of this one. What was used so far counts on."""
        heir = copy.copy(self)
        heir._pid, heir.state, heir._directory = pid, state, directory
        heir._ended_cpu, heir._cpu = self._ended_cpu + sum(self._cpu.values()), {}
        heir.due = time.monotonic() if self._looks else math.inf
        return heir

    def close(self) -> None:
        close(self.state)
        self._disk = None

    def _measure(self) -> Excess | None:
        most = self._limits.get("processes", 0)
        tree = look_at(*self._roots(), most_tasks=most)
        if most and tree.tasks > most:
            return "processes", most, tree.tasks
        return self._measure_memory(tree) or self._measure_cpu(tree) or self._measure_disk(tree)

    def _roots(self) -> list[int]:
        """Returns the processes below which all of the kernel's are: it can refuse to take in its orphans."""
        if self._alone and not self._first:
            return [pid for pid in children() if session_of(pid) != os.getsid(0)]  # but for the keeper's own
        if self._first:
            return [self._pid, *self.checkpoints, *children(self._first)]
        return [self._pid, *self.checkpoints, *self._spares()]

    def _spares(self) -> list[int]:
        """Returns what the checkpoints hold ready to go on as kernels."""
        return [pid for pid in children() if session_of(pid) in self.checkpoints] if self.checkpoints else []

    def _measure_memory(self, tree: Tree) -> Excess | None:
        limit = self._limits.get("memory")
        if limit is None:
            return None
        now = shared_memory()
        self._shared_before = min(self._shared_before, now)  # others may have given some back
        shared = now - self._shared_before
        if sum(tree.resident.values()) + beside_resident(tree.pids) - self._inherited + shared <= limit:
            return None
        used = exact_memory(tree.pids, self._pid) + (shared if hide(tree.pids, self._pid) else 0)
        self._peak = max(self._peak, used)
        return ("memory", limit, self._peak) if used > limit else None

    def _measure_cpu(self, tree: Tree) -> Excess | None:
        limit = self._limits.get("cpu")
        if limit is None:
            return None
        for pid in self._cpu.keys() - tree.cpu.keys():
            self._ended_cpu += self._cpu[pid]
        self._cpu = tree.cpu
        # A process that is not waited for takes its count with it, and one that lives shortly is never seen.
        used = max(tree.seconds, self._ended_cpu + sum(tree.cpu.values()))
        if self._clock:
            used = _groups.cpu_seconds(self._clock) or used
        return ("cpu", limit, used) if used >= limit else None

    def _measure_disk(self, tree: Tree) -> Excess | None:
        if self._disk is None:
            return None
        used = self._disk.measure(tree.pids, self._pid) + self._own_files()
        return ("disk", self._limits["disk"], used) if used > self._limits["disk"] else None

    def _own_files(self) -> int:
        """Returns the bytes of the files that the kernel itself writes to, in a sandbox too."""
        found = 0
        for name in (LOG, STATE):
            with contextlib.suppress(FileNotFoundError):
                found += os.stat(name, dir_fd=self._directory, follow_symlinks=False).st_blocks * 512
        return found

    def _is_idle(self) -> bool:
        """Tells whether the kernel says that it runs no cell."""
        try:
            state = _state.parse(os.pread(self.state, _state.SIZE, 0))
        except OSError:
            return False
        return state is not None and state.activity == "idle" and not state.busy_since

    def _count_oom_kills(self) -> int:
        return sum(_groups.oom_kills(group) or 0 for group in self.groups)
