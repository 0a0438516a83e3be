"""A process that is trusted only together with its start time, so that a recycled pid is never signalled."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time

from kernelbox.wire._layout import MAKER
from kernelbox.wire._values import dataclass

# Interrupts a kernel whose interpreter is held by C code; guest/_interrupts.py has the same.
DIRECT_INTERRUPT = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


# A line of /proc/pid/status.
_FIELD = re.compile(r"^(\w+):\t(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """What tells a process from every other: its pid, when it started, and the boot that start times count from."""

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def own(cls) -> ProcessIdentity:
        """Returns the identity of this process."""
        return cls(os.getpid(), read_start_time(os.getpid()) or 0, boot_id())

    def find(self) -> Process | None:
        """Returns the process, alive or ended; None if it cannot be alive because the machine was restarted since."""
        return Process(self.pid, self.start_time) if self.boot_id == boot_id() else None

    @property
    def alive(self) -> bool:
        process = self.find()
        return process is not None and process.alive


class Process:
    """A kernel's process as the host sees it: alive or not, and how to signal it."""

    def __init__(self, pid: int, start_time: int) -> None:
        self.pid = pid
        self.start_time = start_time
        self._pidfd: int | None = None

    def __repr__(self) -> str:
        return f"<Process {self.pid} {'alive' if self.alive else 'gone'}>"

    @property
    def alive(self) -> bool:
        """Whether it lives. If that cannot be found out, because too much is open, the pid alone decides."""
        try:
            return read_start_time(self.pid) == self.start_time
        except OSError:
            return exists(self.pid)

    @property
    def work(self) -> int:
        """The processor time that it has used, in ticks: a number that stays the same shows that it does nothing."""
        fields = _read_stat(self.pid)
        return int(fields[11]) + int(fields[12]) if fields is not None else 0

    @property
    def threads(self) -> int:
        """How many threads it has; 0 if that cannot be found out."""
        try:
            fields = _read_stat(self.pid)
        except OSError:
            return 0
        return int(fields[17]) if fields is not None else 0

    @property
    def is_zombie(self) -> bool:
        """Whether the process has ended and its parent has not taken note yet."""
        return self._stat_of_zombie() is not None

    @property
    def waiting_keeper(self) -> int:
        """The parent that has not taken note yet of the end of this process; 0 if there is none.

        A process whose keeper has ended before is the child of process 1, which leaves no notes.
        """
        fields = self._stat_of_zombie()
        return int(fields[1]) if fields is not None and int(fields[1]) > 1 else 0

    def _stat_of_zombie(self) -> list[bytes] | None:
        try:
            fields = _read_stat(self.pid)
        except OSError:
            return None  # it cannot be found out
        is_one = fields is not None and fields[0] in (b"Z", b"X") and int(fields[19]) == self.start_time
        return fields if is_one else None

    def continue_parent(self) -> None:
        """Lets the parent of a zombie go on, if it has been stopped: it is to take note of the end."""
        if keeper := self.waiting_keeper:
            with contextlib.suppress(OSError):
                os.kill(keeper, signal.SIGCONT)

    def wake(self) -> None:
        """Continues the process if it was stopped; a handler for SIGCONT in one that runs is not called."""
        with contextlib.suppress(OSError):  # that it cannot be found out
            fields = _read_stat(self.pid)
            if fields is not None and fields[0] != b"T":
                return
        self.signal(signal.SIGCONT)

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when the process ends; -1 where the system has none."""
        if self._pidfd is None:
            self._pidfd = self._open()
        return self._pidfd

    def signal(self, number: int) -> bool:
        """Sends a signal; returns whether the process was there to get it."""
        try:
            if self.fileno() >= 0:
                signal.pidfd_send_signal(self.fileno(), number)
            elif self._is_certainly_alive():
                os.kill(self.pid, number)
            else:
                return False
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def signal_group(self, number: int) -> bool:
        """Sends a signal to the group that the process leads, as a terminal does; returns whether it was there."""
        if not self._is_certainly_alive():
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def kill_descendants(self, *, since: float) -> bool:
        """Kills the processes below this one that started at a time, in seconds since boot, or later.

        Returns whether there were any.
        """
        ticks = int(since * os.sysconf("SC_CLK_TCK"))
        young = [relative for relative in self.descendants() if relative.start_time >= ticks]
        young = young if self._is_certainly_alive() else []
        for relative in young:
            relative.signal(signal.SIGKILL)
        return bool(young)

    def wait(self, timeout: float) -> bool:
        """Waits for the process to end; returns whether it has."""
        deadline = time.monotonic() + timeout
        if self.fileno() >= 0:
            poller = select.poll()
            poller.register(self.fileno(), select.POLLIN)
            return bool(poller.poll(timeout * 1000)) or not self.alive
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.005)
        return not self.alive

    def descendants(self) -> list[Process]:
        """Returns the processes below this one, by what /proc says; none where there is no /proc."""
        found: list[Process] = []
        waiting = [self.pid]
        while waiting:
            for pid in children_of(waiting.pop()):
                with contextlib.suppress(OSError):
                    start_time = read_start_time(pid)
                    if start_time is not None:
                        found.append(Process(pid, start_time))
                        waiting.append(pid)
        return found

    def first_of_namespace(self) -> Process | None:
        """Returns the first process of the pid namespace that this one is in, None if it is gone.

        It is a child of the maker's, who is the template's oldest child; if these are gone any process may be it. The
        system ends all others in the namespace with it.
        """
        namespace = _namespace_of(self.pid)
        maker = next(filter(is_maker, children_of(parent_of(self.pid) or 0)), 0)
        for pid in (*children_of(maker), *_pids()) if namespace else ():
            if _namespace_of(pid) == namespace and _is_first(pid):
                return Process(pid, read_start_time(pid) or 0)
        return None

    def kill_session(self) -> None:
        """Kills what is left of the session that the process led, for when its keeper is gone.

        Only to be called by who has just seen it end: the number of a session is not given to another process while
        the session has members, but it may be later.
        """
        if os.path.exists(f"/proc/{self.pid}") and not self.is_zombie:
            return  # another process has the number already
        for pid in _pids():
            with contextlib.suppress(OSError):
                if os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        if self._pidfd is not None and self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd = None

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def _is_certainly_alive(self) -> bool:
        """Tells whether the pid is still this process's; False also if that cannot be found out."""
        try:
            return read_start_time(self.pid) == self.start_time
        except OSError:
            return False

    def _open(self) -> int:
        if not hasattr(os, "pidfd_open"):
            return -1
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return -1
        if not self._is_certainly_alive():  # the pid may have passed to another process before
            os.close(fd)
            return -1
        return fd


def read_start_time(pid: int) -> int | None:
    """Returns when a process started, in the system's own unit; None if there is no such process, or a zombie.

    Raises OSError if that cannot be found out.
    """
    fields = _read_stat(pid)
    if fields is None:
        if os.path.isdir("/proc/self"):
            return None
        from kernelbox.usage._processes import ask_start_time

        return ask_start_time(pid)
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def exists(pid: int) -> bool:
    """Tells whether any process has a pid; only "no such process" means that none has."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no pid is so large
        return False
    except PermissionError:
        return True
    return True


def since_boot() -> float:
    """Returns the clock that start times are read from, in seconds."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Returns what tells this boot of the machine from the last: start times count from it."""
    if not _boot_id:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot_id.append(file.read().strip())
        except OSError:
            _boot_id.append("")
    return _boot_id[0]


_boot_id: list[str] = []  # it does not change while we run, and a list of kernels asks for it often


def children_of(pid: int) -> list[int]:
    """Returns the direct children of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def parent_of(pid: int) -> int | None:
    """Returns the parent of a process; None if it is gone."""
    fields = _read_stat(pid)
    return None if fields is None else int(fields[1])


def _read_stat(pid: int) -> list[bytes] | None:
    """Returns the fields of /proc/pid/stat (proc(5)) from the state on, which follow a name that may hold anything."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return os.read(fd, 4096).rpartition(b")")[2].split() or None
    except ProcessLookupError:  # it ended between the two
        return None
    finally:
        os.close(fd)


def read_status(pid: int | str) -> dict[str, str]:
    """Returns what /proc/pid/status says (proc(5)), by name; raises OSError if it cannot be read."""
    with open(f"/proc/{pid}/status") as file:
        return dict(_FIELD.findall(file.read()))


def added_filters(status: dict[str, str]) -> int:
    """Returns how many filters of system calls a process of this status has beyond its parent's; raises OSError if
    that cannot be read.

    A host in a container, and so all that it starts, has filters that are none of ours.
    """
    own, inherited = (int(each.get("Seccomp_filters", "0")) for each in (status, read_status(status.get("PPid", "0"))))
    return own - inherited


def is_maker(pid: int) -> bool:
    """Tells whether a process is one that makes sandboxes for a template."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().rstrip("\n") == MAKER
    except OSError:
        return False


def _is_first(pid: int) -> bool:
    try:
        return read_status(pid).get("NSpid", "").split()[-1:] == ["1"]
    except OSError:
        return False


def _namespace_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _pids() -> list[int]:
    try:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []
