"""A process that is trusted only together with its start time, so that a recycled pid is never signalled."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

# Interrupts a kernel whose interpreter is held by C code; guest/_interrupts.py has the same.
DIRECT_INTERRUPT = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2


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
        return read_start_time(self.pid) == self.start_time

    @property
    def is_zombie(self) -> bool:
        """Whether the process has ended and its parent has not taken note yet."""
        fields = _read_stat(self.pid)
        return fields is not None and fields[0] in (b"Z", b"X") and int(fields[19]) == self.start_time

    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when the process ends; -1 where the system has none."""
        if self._pidfd is None:
            self._pidfd = self._open()
        return self._pidfd

    def signal(self, number: int) -> bool:
        """Sends a signal; returns whether the process was there to get it."""
        if not self.alive:
            return False
        try:
            if self.fileno() >= 0:
                signal.pidfd_send_signal(self.fileno(), number)
            else:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

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

    def kill_session(self) -> None:
        """Kills what is left of the session that the process led, for when nobody else looks after its children."""
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

    def _open(self) -> int:
        if not hasattr(os, "pidfd_open"):
            return -1
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return -1
        if not self.alive:  # the pid may have passed to another process before the descriptor was ours
            os.close(fd)
            return -1
        return fd


def read_start_time(pid: int) -> int | None:
    """Returns when a process started, in the system's own unit; None if there is no such process, or a zombie."""
    fields = _read_stat(pid)
    if fields is None:
        return _read_start_time_elsewhere(pid) if not os.path.isdir("/proc/self") else None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    """Returns what tells this boot of the machine from the last: start times count from it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _read_stat(pid: int) -> list[bytes] | None:
    """Returns the fields of /proc/pid/stat (proc(5)) from the state on, which follow a name that may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _read_start_time_elsewhere(pid: int) -> int | None:
    """Asks ps, on systems without /proc."""
    import subprocess
    import zlib

    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, check=False)
    state, _, started = answer.stdout.strip().partition(b" ")
    return None if not started or state.startswith(b"Z") else zlib.crc32(started)


def _pids() -> list[int]:
    try:
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []
