"""The parent of kernels: it learns how each one ends, writes it down, and ends what a dead kernel leaves behind.

Kernels and their parent are child subreapers: while a kernel lives its orphans are its own; when it dies they become
children of its parent, and belong to no kernel any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import sys
import termios
import time
from typing import TYPE_CHECKING

from kernelbox.guest._exit_status import read_exit_code
from kernelbox.guest._process_tree import (
    become_subreaper,
    children,
    descendants,
    has_lost_main_thread,
    kill_descendants,
)
from kernelbox.guest.birth._adoption import Adoptions
from kernelbox.guest.birth._checkpoint_memory import CheckpointMemory
from kernelbox.guest.birth._child_kernel import ChildKernel, running_execution
from kernelbox.guest.birth._held_files import HeldFiles
from kernelbox.wire._layout import DEATH
from kernelbox.wire._messages import SETTLED

if TYPE_CHECKING:
    from kernelbox.guest.walls._limit_watch import LimitWatch

# Bytes that a dying kernel left in each of its pipes, such as the last words of a C library, that are kept.
_LAST_WORDS = 1024 * 1024

# Seconds that killed processes of a control group may take to end: only the system is waited for.
_GROUP_PATIENCE = 2.0

# Times that what a kernel has left in its sandbox is looked for and killed.
_ROUNDS = 100

# What a pipe has room for, pipe(7), and what every user may enlarge it to (fs.pipe-max-size). The kernel must be able
# to take so much when a cell ends: `_READS` in guest/output/_outbox.py.
_USUAL_PIPE = 64 * 1024
_LARGE_PIPE = 1024 * 1024

_HAS_WAITID = hasattr(os, "waitid")  # macOS has it from Python 3.13 on


class Keeper:
    """Keeps kernels: knows their pids, reaps them, leaves a note of how each one ended."""

    def __init__(self) -> None:
        self.kernels: dict[int, ChildKernel] = {}
        self.limited: dict[int, LimitWatch] = {}
        """What looks after the limits of kernels that have any."""
        self.files = HeldFiles()
        self.of_sandboxes: set[int] = set()
        """The maker, and the first processes of sandboxes, which become our children if the maker ends."""
        self.spare = 0
        """The fork of the template that waits to become a kernel, if there is one."""
        self.helpers: set[int] = set()
        """Forks of ours that find something out, and end."""
        self.adoptions = Adoptions(self)
        self.memory = CheckpointMemory(self)
        self._oom_kills = self._oom_kills_seen = _count_oom_kills()
        become_subreaper()

    @property
    def patience(self) -> float:
        """The seconds until the next check of a kernel's limits, or of the memory of its checkpoints."""
        due = (watch.due for watch in self.limited.values())
        return max(0.0, min((self.memory.due, *due)) - time.monotonic())

    @property
    def watched(self) -> list[int]:
        """What else becomes readable than what belongs to one kernel."""
        return [*self.files.watched, *self.adoptions.watched, *self.memory.watched]

    @property
    def descriptors(self) -> list[int]:
        """All that is open here, but for what belongs to one kernel; for a fork to close."""
        return [*self.adoptions.descriptors, *self.memory.descriptors]

    def keep(self, pid: int, kernel: ChildKernel) -> None:
        """Takes in a kernel, and watches what is held open for it."""
        kernel.held = self.files.hold(pid, kernel.held)
        self.kernels[pid] = kernel

    def limit(self, pid: int, watch: LimitWatch) -> None:
        """Begins to look after the limits of a kernel."""
        self.kernels[pid].watch = self.limited[pid] = watch

    def look(self) -> None:
        """Ends the kernels that exceed a limit, with all that they have started."""
        self.memory.look()
        for pid, watch in self.limited.items():
            kept = self.kernels[pid]
            if kept.excess is not None or watch.due > time.monotonic():
                continue
            with contextlib.suppress(OSError):  # of a file system that fails: the next look may tell more
                kept.excess = watch.look()
            if kept.excess is not None and kept.excess[0] == "disk" and watch.spare(self._others(pid)):
                kept.excess = None
            if kept.excess is not None and kept.first and self.family(kept):
                kill_descendants(pid)
                self.kill(pid)  # what it leaves in the sandbox is ended when it has
            elif kept.excess is not None and kept.first:
                kept.kill_first()
            elif kept.excess is not None:
                kill_descendants(pid)  # first: they become others' children when it has ended
                kill(pid)

    def _others(self, pid: int) -> list[LimitWatch]:
        return [watch for other, watch in self.limited.items() if other != pid]

    def reap(self) -> None:
        """Takes note of every child that has ended; a kernel stays a zombie until its note is written."""
        while (ended := _next_ended()) is not None:
            pid, code = ended
            kept = None if self._is_orphan(pid) else self.kernels.get(pid)
            self.of_sandboxes.discard(pid)
            self.helpers.discard(pid)
            self.spare = 0 if pid == self.spare else self.spare
            if kept is not None:
                self._write_down(pid, code)
            if _HAS_WAITID:
                os.waitpid(pid, 0)
            if kept is not None:
                self.of_sandboxes.discard(kept.first)  # not before: until then it must not be waited for

    def check(self) -> None:
        """Ends kernels that no client can reach: their directory or socket was deleted, replaced or moved.

        Also ends kernels whose main thread has ended while others live: the system reports no end, and no cell can run.
        Drops checkpoints that are too old. Makes room in the pipes of kernels that cannot, because C code writes and
        holds the interpreter.
        """
        # What was counted the last time: a kernel that has been killed since takes a moment to end.
        self._oom_kills, self._oom_kills_seen = self._oom_kills_seen, _count_oom_kills()
        for pid, kept in self.kernels.items():
            if not kept.is_reachable:
                kept.reason = kept.reason or "its files were deleted, and no client could reach it any more"
                self.kill(pid)
            elif kept.is_frozen and kept.expires <= time.monotonic():
                self.adoptions.release(kept.kernel_id, kept.checkpoint, why="age")
            elif has_lost_main_thread(pid):
                if kept.is_headless:
                    kept.reason = kept.reason or "its main thread was ended"
                    self.kill(pid)
                kept.is_headless = True  # one that is just exiting has none either, and tells by its status of what
            for pipe in kept.outputs:
                _fit_pipe(pipe)
            if kept.watch is not None:
                kept.watch.note_oom_kills()

    def kill(self, pid: int) -> None:
        """Kills a kernel that has not been reaped."""
        kept = self.kernels.get(pid)
        if kept is not None and "process" in kept.held:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(kept.held["process"], signal.SIGKILL)
        elif kept is not None:
            kill(pid)

    def wait(self, pid: int) -> None:
        """Waits for a child that was killed, and takes note of its end."""
        kept = self.kernels.get(pid)
        if kept is None:
            return
        if "process" in kept.held:
            poller = select.poll()
            poller.register(kept.held["process"], select.POLLIN)
            poller.poll(_GROUP_PATIENCE * 1000)
            self._write_down(pid, -signal.SIGKILL)
        else:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            self.reap()

    def heed(self, descriptor: int) -> list[int]:
        """Ends kernels whose owner has gone, or whose opener went before the start was over.

        Returns the doors at which hosts call.
        """
        if descriptor not in self.files.watched:
            if not self.adoptions.give_up(descriptor):
                self.memory.heed(descriptor)
            return []
        doors = []
        for pid, name, number in self.files.readable():
            kept = self.kernels.get(pid)
            if kept is None or kept.held.get(name) != number:
                continue  # it has gone meanwhile
            match name:
                case "lifeline":
                    self.kill(pid)
                case "opening":
                    self.adoptions.settle(pid, kept, settled=os.read(number, len(SETTLED)) == SETTLED)
                case "link":
                    self.adoptions.heed(kept)
                case "process":
                    self._write_down(pid, read_exit_code(number))
                case "door":
                    doors.append(number)
        return doors

    def _write_down(self, pid: int, code: int | None) -> None:
        kept = self.kernels.pop(pid)
        self.limited.pop(pid, None)
        family = self.family(kept)
        if not family:
            kept.kill_first()  # it ends when its kernel has been reaped: it must not be waited for here
        else:
            self._pass_on(kept, family)
        if kept.checkpoint or kept.is_disinherited:
            self._forget(pid, kept, alone=not family)
            return
        oom_kills = _count_oom_kills()
        note: dict[str, object] = {
            "reason": kept.reason,
            "start_time": kept.start_time,
            "signal": -code if code is not None and code < 0 else None,
            "exit_status": code if code is not None and code >= 0 else None,
            "out_of_memory": code == -signal.SIGKILL and oom_kills > self._oom_kills,
            "at": time.time(),
            "execution": running_execution(kept.held["directory"]) if kept.execution is None else kept.execution,
            "last_words": [_read_rest(pipe) for pipe in kept.outputs],
        }
        self._oom_kills = self._oom_kills_seen = oom_kills
        self._end_orphans(pid)
        if kept.watch is not None:
            note["excess"] = kept.excess or kept.watch.find_cause(code)
            kept.watch.close() if family else kept.watch.leave(self._others(pid))
        if not family:
            _remove_groups(kept.groups)
        write_note(kept.held["directory"], note)
        kept.held.close_all()

    def family(self, kept: ChildKernel) -> list[ChildKernel]:
        """Returns the other processes of the same kernel: its checkpoints, itself if this is one, an heir."""
        return [other for other in self.kernels.values() if other.kernel_id == kept.kernel_id and other is not kept]

    def _pass_on(self, kept: ChildKernel, family: list[ChildKernel]) -> None:
        """Leaves to the family of a process that has ended what they share, and ends what it has left in a sandbox."""
        if "door" in kept.held:
            family[0].held.keep("door", kept.held.take("door"))
        if kept.watch is not None:
            resting = kept.watch.pass_on(0, -1, -1)
            for relative in family:
                if relative.shared_watch is kept.watch:
                    relative.shared_watch = resting
        if kept.first and not kept.checkpoint:
            self._clear_sandbox(kept)

    def _clear_sandbox(self, kept: ChildKernel) -> None:
        """Ends all in a sandbox but the first process and what is known here: the checkpoints of a kernel."""
        for _ in range(_ROUNDS):
            left = [pid for pid in descendants(kept.first) if self._is_orphan(pid)]
            if not left:
                return
            for pid in left:
                kill(pid)
        kept.kill_first()  # it forks faster than it can be killed

    def _forget(self, pid: int, kept: ChildKernel, *, alone: bool) -> None:
        """Forgets a checkpoint that has ended, or an heir that has not taken its place; `alone` says that its kernel
        and the other checkpoints are gone."""
        self._end_orphans(pid)
        if kept.shared_watch is not None:
            kept.shared_watch.checkpoints.discard(pid)
            if alone:
                kept.shared_watch.leave(self._others(pid))
        if kept.checkpoint:
            kept.remove_entrances()
            self.adoptions.lose(kept)
        if alone:
            _remove_groups(kept.groups)
        kept.held.close_all()

    def _end_orphans(self, dead: int) -> None:
        """Kills what a dead kernel left: any child that is neither a kernel nor part of a sandbox."""
        others = {dead}
        while orphans := [pid for pid in children() if pid not in others and self._is_orphan(pid)]:
            others |= _end_each(orphans)

    def _is_orphan(self, pid: int) -> bool:
        """Tells whether a child is unknown here."""
        if pid in self.kernels or pid in self.of_sandboxes or pid in self.helpers or pid == self.spare:
            return False
        try:
            return os.getsid(pid) not in self.kernels  # else it is a copy that has not presented itself yet
        except OSError:
            return True


def appoint_keeper(descriptor: int) -> None:
    """Forks a keeper, in which this returns, and stays as its parent.

    Another program does not notice that its keeper was killed, and nothing would end what it started. Such processes
    pass to the keeper's parent, which ends them. The parent holds no copy of `descriptor`, where requests arrive.
    """
    become_subreaper()
    gc.freeze()  # or the keeper's first collection would copy what the two share
    keeper = os.fork()
    if keeper == 0:
        return
    os.close(descriptor)
    os.waitpid(keeper, 0)
    end_children()
    os._exit(0)


def end_children() -> None:
    """Ends all children of this process, also those that pass to it meanwhile."""
    others: set[int] = set()
    while left := [pid for pid in children() if pid not in others]:
        others |= _end_each(left)


def _end_each(orphans: list[int]) -> set[int]:
    """Ends children of this process; returns those that have become another user's, as by sudo(8): they go on."""
    others = set()
    for pid in orphans:
        kill_descendants(pid)  # all of them before one is waited for: they may be forking
        if not kill(pid):
            others.add(pid)
    for pid in reversed(orphans):  # the first process of a sandbox ends after the others in it
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG if pid in others else 0)  # its own children are ours now, and next
    return others


def _fit_pipe(pipe: int) -> None:
    """Enlarges a pipe that is more than half full, and makes an empty one as small as it was.

    A kernel empties its pipes itself, within milliseconds. It cannot while C code holds the interpreter, and such code
    waits when a pipe is full. Each write(2) may begin a page, so a pipe is full when it holds half of what it could.
    """
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return
    with contextlib.suppress(OSError):  # the user has enlarged too many
        size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        waiting = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        if size < _LARGE_PIPE and 2 * waiting > size:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _LARGE_PIPE)
        elif size > _USUAL_PIPE and not waiting:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _USUAL_PIPE)


def _remove_groups(groups: list[str]) -> None:
    """Ends what is left in the control groups of a dead kernel, and removes the groups."""
    from kernelbox.usage import _group_usage as _groups

    for group in groups:
        deadline = time.monotonic() + _GROUP_PATIENCE
        while (left := _groups.members(group)) and time.monotonic() < deadline:
            for pid in left:
                kill(pid)
            time.sleep(0.001)
        with contextlib.suppress(OSError):
            os.rmdir(group)


def kill(pid: int) -> bool:
    """Kills a child that has not been waited for, so the pid is still its own. Returns whether that is allowed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _next_ended() -> tuple[int, int] | None:
    """Returns a child that has ended and its exit status, negative for a signal. It stays a zombie if it can."""
    try:
        if not _HAS_WAITID:
            pid, status = os.waitpid(-1, os.WNOHANG)
            return (pid, os.waitstatus_to_exitcode(status)) if pid else None
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    return ended.si_pid, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _count_oom_kills() -> int:
    try:
        with open("/proc/vmstat") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except OSError:
        return 0


def _read_rest(pipe: int) -> str:
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    data = b""
    while len(data) < _LAST_WORDS and any(event & select.POLLIN for _, event in poller.poll(0)):
        piece = os.read(pipe, _LAST_WORDS)
        if not piece:
            break
        data += piece
    return data.decode("utf-8", "backslashreplace")


def write_note(directory: int, note: dict[str, object]) -> None:
    """Writes a note of a death under a name that no cell can guess, then moves it into place over anything there."""
    new = f"{DEATH}.{os.urandom(8).hex()}"
    with contextlib.suppress(OSError):  # the directory may be gone already, and every reader with it
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=directory)
        with open(fd, "w") as file:
            json.dump(note, file)
        with contextlib.suppress(IsADirectoryError):
            os.rename(new, DEATH, src_dir_fd=directory, dst_dir_fd=directory)
            return
        os.rename(DEATH, f"{new}.planted", src_dir_fd=directory, dst_dir_fd=directory)
        os.rename(new, DEATH, src_dir_fd=directory, dst_dir_fd=directory)
