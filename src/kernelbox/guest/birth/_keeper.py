"""The parent of kernels: it learns how each one ends, writes it down, and ends what a dead kernel leaves behind.

Kernels and their parent are child subreapers: while a kernel lives its orphans are its own; when it dies they become
children of its parent, and belong to no kernel any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import math
import os
import select
import signal
import sys
import termios
import time
from typing import TYPE_CHECKING

from kernelbox.guest._process_tree import become_subreaper, children, has_lost_main_thread, kill_descendants
from kernelbox.guest.birth._child_kernel import ChildKernel
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._layout import DEATH, STATE
from kernelbox.wire._messages import SETTLED

if TYPE_CHECKING:
    from kernelbox.guest.walls._limit_watch import LimitWatch

# Bytes that a dying kernel left in each of its pipes, such as the last words of a C library, that are kept.
_LAST_WORDS = 1024 * 1024

# Seconds that what was killed in a control group may take to end; it has been told, and only the system is waited for.
_GROUP_PATIENCE = 2.0

# What a pipe has room for, pipe(7), and what every user may enlarge it to (fs.pipe-max-size). The kernel must be able
# to take so much when a cell ends: `_READS` in guest/output/_outbox.py.
_USUAL_PIPE = 64 * 1024
_LARGE_PIPE = 1024 * 1024

_HAS_WAITID = hasattr(os, "waitid")  # macOS has it from Python 3.13 on


class Keeper:
    """Keeps kernels: knows their pids, reaps them, leaves a note of how each one ended."""

    def __init__(self) -> None:
        self.kernels: dict[int, ChildKernel] = {}
        self.of_sandboxes: set[int] = set()
        """The maker, and the first processes of sandboxes, which become our children if the maker ends."""
        self._oom_kills = self._oom_kills_seen = _count_oom_kills()
        become_subreaper()

    def __repr__(self) -> str:
        return f"<Keeper of {len(self.kernels)} kernels>"

    @property
    def patience(self) -> float:
        """The seconds until the next check of a kernel's limits."""
        due = [kept.watch.due for kept in self.kernels.values() if kept.watch is not None]
        return max(0.0, min(due) - time.monotonic()) if due else math.inf

    def look(self) -> None:
        """Ends the kernels that exceed a limit, with all that they have started."""
        for pid, kept in self.kernels.items():
            if kept.watch is None or kept.excess is not None or kept.watch.due > time.monotonic():
                continue
            with contextlib.suppress(OSError):  # of a file system that fails: the next look may tell more
                kept.excess = kept.watch.look()
            if kept.excess is not None and kept.excess[0] == "disk" and kept.watch.spare(self._others(pid)):
                kept.excess = None
            if kept.excess is not None and kept.first:
                kept.kill_first()
            elif kept.excess is not None:
                kill_descendants(pid)  # first: they become others' children when it has ended
                kill(pid)

    def _others(self, pid: int) -> list[LimitWatch]:
        return [kept.watch for other, kept in self.kernels.items() if other != pid and kept.watch is not None]

    def reap(self) -> None:
        """Takes note of every child that has ended; a kernel stays a zombie until its note is written."""
        while (ended := _next_ended()) is not None:
            pid, code = ended
            kept = None if self._is_orphan(pid) else self.kernels.get(pid)
            self.of_sandboxes.discard(pid)
            if kept is not None:
                self._write_down(pid, code)
            if _HAS_WAITID:
                os.waitpid(pid, 0)
            if kept is not None:
                self.of_sandboxes.discard(kept.first)  # not before: until then it must not be waited for

    def check(self) -> None:
        """Ends kernels that no client can reach: their directory or socket was deleted, replaced or moved.

        Also ends kernels whose main thread has ended while others live: the system reports no end, and no cell can run.
        Makes room in the pipes of kernels that cannot, because C code writes and holds the interpreter.
        """
        # What was counted the last time: a kernel that has been killed since takes a moment to end.
        self._oom_kills, self._oom_kills_seen = self._oom_kills_seen, _count_oom_kills()
        for pid, kept in self.kernels.items():
            if not kept.is_reachable:
                kept.reason = kept.reason or "its files were deleted, and no client could reach it any more"
                self.kill(pid)
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
        if pid in self.kernels:
            kill(pid)

    def heed(self, descriptor: int) -> None:
        """Ends a kernel whose owner has gone, or whose opener went before the start was over."""
        for pid, kept in self.kernels.items():
            match kept.held.name_of(descriptor):
                case "lifeline":
                    self.kill(pid)
                case "opening":
                    if os.read(descriptor, len(SETTLED)) != SETTLED:
                        kept.reason = "its start was cut short"
                        self.kill(pid)
                    kept.held.close("opening")

    def _write_down(self, pid: int, code: int) -> None:
        kept = self.kernels.pop(pid)
        kept.kill_first()  # it ends when its kernel has been reaped: it must not be waited for here
        oom_kills = _count_oom_kills()
        note: dict[str, object] = {
            "reason": kept.reason,
            "start_time": kept.start_time,
            "signal": -code if code < 0 else None,
            "exit_status": code if code >= 0 else None,
            "out_of_memory": code == -signal.SIGKILL and oom_kills > self._oom_kills,
            "at": time.time(),
            "execution": _running(kept.held["directory"]),
            "last_words": [_read_rest(pipe) for pipe in kept.outputs],
        }
        self._oom_kills = self._oom_kills_seen = oom_kills
        self._end_orphans(pid)
        if kept.watch is not None:
            note["excess"] = kept.excess or kept.watch.find_cause(code)
            _remove_groups(kept.watch.groups)
            kept.watch.leave(self._others(pid))
        write_note(kept.held["directory"], note)
        kept.held.close_all()

    def _end_orphans(self, dead: int) -> None:
        """Kills what a dead kernel left: any child that is neither a kernel nor part of a sandbox."""
        others = {dead}
        while orphans := [pid for pid in children() if pid not in others and self._is_orphan(pid)]:
            others |= _end_each(orphans)

    def _is_orphan(self, pid: int) -> bool:
        """Tells whether a child is unknown here."""
        return pid not in self.kernels and pid not in self.of_sandboxes


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


def _running(directory: int) -> str:
    """Returns the execution that a kernel ran when it ended: what it wrote last belongs to that one."""
    try:
        fd = os.open(STATE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return ""
    try:
        state = _state.parse(os.read(fd, _state.SIZE))
    except OSError:
        return ""  # a cell has put something else there
    finally:
        os.close(fd)
    return state.running if state is not None else ""


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
