"""A process, identified by its pid and its start time, so that a recycled pid is never signalled."""

from __future__ import annotations

import os
import select
import time

from kernelbox.base._light_stdlib import signal, suppress
from kernelbox.base._unique_objects import Owner, close_own, identify
from kernelbox.wire._layout import MAKER
from kernelbox.wire._values import dataclass

# Interrupts a kernel while C code holds the interpreter; guest/_interrupts.py has the same.
DIRECT_INTERRUPT = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of a process: its pid, its start time, and the boot that start times count from."""

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def own(cls) -> ProcessIdentity:
        return cls(os.getpid(), read_start_time(os.getpid()) or 0, boot_id())

    def find(self) -> Process | None:
        """Returns the process, alive or ended; None if the machine was restarted since."""
        return Process(self.pid, self.start_time) if self.boot_id == boot_id() else None

    @property
    def alive(self) -> bool:
        process = self.find()
        return process is not None and process.alive


class Process(Owner):
    """A kernel's process: whether it is alive, and how to signal it."""

    def __init__(self, pid: int, start_time: int) -> None:
        self.pid = pid
        self.start_time = start_time
        self._pidfd: int | None = None
        self._identity = (0, 0)

    def __repr__(self) -> str:
        return f"<Process {self.pid} {'alive' if self.alive else 'gone'}>"

    @property
    def alive(self) -> bool:
        """Whether it is alive. With too many open files to find out, the pid alone decides."""
        try:
            return read_start_time(self.pid) == self.start_time
        except OSError:
            return exists(self.pid)

    @property
    def work(self) -> int:
        """The processor time that it has used, in ticks; it stays the same while the process does nothing."""
        fields = _read_stat(self.pid)
        return int(fields[11]) + int(fields[12]) if fields is not None else 0

    @property
    def threads(self) -> int:
        """The number of its threads; 0 if unknown."""
        try:
            fields = _read_stat(self.pid)
        except OSError:
            return 0
        return int(fields[17]) if fields is not None else 0

    @property
    def waiting_keeper(self) -> int:
        """The pid of the parent that has not reaped this process yet; 0 if there is none.

        If the keeper has ended, the parent is process 1, which does not count.
        """
        fields = self._stat_of_zombie()
        return int(fields[1]) if fields is not None and int(fields[1]) > 1 else 0

    def _stat_of_zombie(self) -> list[bytes] | None:
        try:
            fields = _read_stat(self.pid)
        except OSError:
            return None
        is_one = fields is not None and fields[0] in (b"Z", b"X") and int(fields[19]) == self.start_time
        return fields if is_one else None

    def continue_parent(self) -> None:
        """Continues the parent of a zombie, in case it was stopped, so that it reaps the process."""
        if keeper := self.waiting_keeper:
            with suppress(OSError):
                os.kill(keeper, signal.SIGCONT)

    def wake(self) -> None:
        """Continues the process if it was stopped, without calling a handler for SIGCONT in a running one."""
        with suppress(OSError):  # unknown
            fields = _read_stat(self.pid)
            if fields is not None and fields[0] != b"T":
                return
        self.signal(signal.SIGCONT)

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when the process ends; -1 if the system has none."""
        if self._pidfd is None:
            self._pidfd = self._open()
            if self._pidfd >= 0:
                self._identity = identify(self._pidfd)
        return self._pidfd

    def signal(self, number: int) -> bool:
        """Sends a signal; returns whether the process was still there."""
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
        """Sends a signal to the group that the process leads, as a terminal does; returns whether there was one."""
        if not self._is_certainly_alive():
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def kill_descendants(self, *, since: float) -> bool:
        """Kills the descendants that started `since` seconds after boot or later; returns whether there were any."""
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
        """Returns the descendants according to /proc; none on a system without it."""
        found: list[Process] = []
        waiting = [self.pid]
        while waiting:
            for pid in children_of(waiting.pop()):
                with suppress(OSError):
                    start_time = read_start_time(pid)
                    if start_time is not None:
                        found.append(Process(pid, start_time))
                        waiting.append(pid)
        return found

    def first_of_namespace(self) -> Process | None:
        """Returns the first process of this one's pid namespace; None if it is gone.

        It is a child of the maker, which is the template's oldest child. If these are gone, any process may be it. When
        it ends, the system ends all others in the namespace.
        """
        namespace = _namespace_of(self.pid)
        maker = next(filter(is_maker, children_of(parent_of(self.pid) or 0)), 0)
        for pid in (*children_of(maker), *_pids()) if namespace else ():
            if _namespace_of(pid) == namespace and _is_first(pid):
                return Process(pid, read_start_time(pid) or 0)
        return None

    def kill_session(self) -> None:
        """Kills what is left of the session that the process led, if its keeper is gone.

        Call it only right after the process ended. The system does not reuse the pid while the session has members, but
        may do so later.
        """
        if os.path.exists(f"/proc/{self.pid}") and self._stat_of_zombie() is None:
            return  # another process has the pid already
        for pid in _pids():
            with suppress(OSError):
                if os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        if self._pidfd is not None and self._pidfd >= 0:
            close_own(self._pidfd, self._identity)
        self._pidfd = None

    def __del__(self) -> None:
        self.close()

    def _is_certainly_alive(self) -> bool:
        """Tells whether the pid still belongs to this process; False if unknown."""
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
        if not self._is_certainly_alive():  # another process may have had the pid already
            os.close(fd)
            return -1
        return fd


def read_start_time(pid: int) -> int | None:
    """Returns when a process started, in the system's own unit; None if it is gone or a zombie. Raises OSError."""
    fields = _read_stat(pid)
    if fields is None:
        if os.path.isdir("/proc/self"):
            return None
        from kernelbox.usage._processes import ask_start_time

        return ask_start_time(pid)
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):  # no pid is so large
        return False
    return True


def since_boot() -> float:
    """Returns the time on the clock of start times, in seconds."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_boot_id: str | None = None


def boot_id() -> str:
    """Returns the id of this boot of the machine, which start times count from."""
    global _boot_id
    if _boot_id is None:  # a list of kernels asks for it often
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot_id = file.read().strip()
        except OSError:
            _boot_id = ""
    return _boot_id


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def parent_of(pid: int) -> int | None:
    """Returns the parent of a process; None if it is gone."""
    fields = _read_stat(pid)
    return None if fields is None else int(fields[1])


def _read_stat(pid: int) -> list[bytes] | None:
    """Returns the fields of /proc/pid/stat (proc(5)) from the state on. The name before them may contain anything."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return os.read(fd, 4096).rpartition(b")")[2].split() or None
    except ProcessLookupError:  # it ended meanwhile
        return None
    finally:
        os.close(fd)


def read_status(pid: int | str) -> dict[str, str]:
    """Returns the fields of /proc/pid/status (proc(5)) by name; raises OSError."""
    with open(f"/proc/{pid}/status") as file:
        fields = (line.partition(":\t") for line in file.read().split("\n"))
    return {name: value for name, found, value in fields if found}


def added_filters(status: dict[str, str]) -> int:
    """Returns how many filters of system calls a process has in addition to its parent's; raises OSError.

    In a container, the host and everything it starts already have filters.
    """
    own, inherited = (int(each.get("Seccomp_filters", "0")) for each in (status, read_status(status.get("PPid", "0"))))
    return own - inherited


def is_maker(pid: int) -> bool:
    """Tells whether a process makes sandboxes for a template."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().rstrip("\n") == MAKER
    except OSError:
        return False


def is_spare(pid: int) -> bool:
    """Tells whether a process waits to become a kernel, by its title."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().startswith(b"kernelbox: spare\0")
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
