"""A process that the kernel starts for a cell: by one system call, from exact bytes, until it has been reaped.

`subprocess` is not used: a cell can replace its functions, and it runs other code of the cell.
"""

from __future__ import annotations

import errno
import tempfile
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import Any, Literal

from kernelbox.guest._exact_values import to_text
from kernelbox.guest._interrupts import held
from kernelbox.guest._stdlib import fcntl, os, select, signal, stat, threading, time
from kernelbox.guest.programs._launcher import carry
from kernelbox.guest.programs._orphans import note
from kernelbox.guest.programs._program import Program
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

Sink = Literal["cell", "pipe", "drop"]

_OPEN, _DUP2, _CLOSE = os.POSIX_SPAWN_OPEN, os.POSIX_SPAWN_DUP2, os.POSIX_SPAWN_CLOSE
_NULL = "/dev/null"

# What Python ignores in its own process, and programs expect to end them.
_DEFAULT_SIGNALS = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name))

_DEFAULT_PATH = os.defpath.encode()

# Where the open descriptors of this process are listed.
_DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"

# Without a pidfd (macOS) the end of a child is looked for this often, in seconds.
_PAUSE = 0.005


class Child:
    """A process that was started, as `%%script --proc` gives it to a cell."""

    def __init__(self, pid: int, argv: tuple[bytes, ...], pipes: dict[int, int]) -> None:
        self.pid = pid
        self.args = list(map(to_text, argv))
        self.returncode: int | None = None
        self.stdin = open(pipes[0], "wb") if 0 in pipes else None  # noqa: SIM115  # closed by close_pipes, or by the cell
        self.stdout = open(pipes[1], "rb") if 1 in pipes else None  # noqa: SIM115
        self.stderr = open(pipes[2], "rb") if 2 in pipes else None  # noqa: SIM115
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Child pid={self.pid} returncode={self.returncode} {self.args!r:.80}>"

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while the process runs."""
        with held(), self._lock:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:
                    self.returncode = 0  # a cell has waited for it: what it was is known there only
                else:
                    self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit status; raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutExpired(self.args, timeout or 0.0)
            self._await_end(left)
        return status

    def _await_end(self, timeout: float | None) -> None:
        """Waits until the process may have ended, or the time is up."""
        try:
            pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        except ProcessLookupError:
            return  # a cell has waited for it
        if pidfd < 0:
            time.sleep(_PAUSE)
            return
        try:
            wait_readable(pidfd, timeout)
        finally:
            os.close(pidfd)

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def signal_group(self, number: int) -> None:
        """Sends a signal to the process and to all that it started and did not move elsewhere."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def close_pipes(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with suppress(OSError):  # what was not read of its input
                    pipe.close()


def start_own(
    program: Program,
    *,
    pipe_in: bool = False,
    out: Sink = "cell",
    err: Sink = "cell",
    inherit: tuple[int, ...] = (),
) -> Child:
    """Starts a program as a child of this process, in a process group of its own.

    It reads a pipe, or the program's `stdin`, or nothing. Its output goes where the cell's own does, into a pipe, or is
    dropped. It inherits no descriptors but these and `inherit`.
    """
    ours: dict[int, int] = {}
    theirs: list[int] = []
    actions: list[tuple[object, ...]] = []
    try:
        if pipe_in:
            source, ours[0] = os.pipe()
            theirs.append(source)
            actions.append((_DUP2, source, 0))
        elif program.stdin is None:
            actions.append((_OPEN, 0, _NULL, os.O_RDONLY, 0))
        else:
            theirs.append(file_of(program.stdin))
            actions.append(_read_file(theirs[-1]))
        for fd, sink in ((1, out), (2, err)):
            if sink == "pipe":
                ours[fd], end = os.pipe()
                theirs.append(end)
                actions.append((_DUP2, end, fd))
            else:
                actions.append((_DUP2, fd, fd) if sink == "cell" else (_OPEN, fd, _NULL, os.O_WRONLY, 0))
        actions += [(_DUP2, fd, fd) for fd in inherit]
        actions += [(_CLOSE, fd) for fd in _inheritable() if fd not in inherit]
        pid = spawn(program, actions)
    except BaseException:
        theirs += ours.values()
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return Child(pid, program.words, ours)


def spawn(program: Program, actions: list[tuple[object, ...]]) -> int:
    """Starts a program by one system call; returns its pid. One with a directory starts through an interpreter."""
    argv, path = program.words, program.environment.get(b"PATH")
    try:
        found = _find(argv[0], path)
        if program.directory is not None:
            argv = carry(argv, program.directory, program.stdin)
            found = _find(argv[0], path)
        environment = dict(program.environment.pairs)
        options: dict[str, Any] = {"file_actions": actions, "setpgroup": 0, "setsigdef": _DEFAULT_SIGNALS}
        return note(os.posix_spawn(found, argv, environment, **options))
    except OSError as exc:
        if exc.errno != errno.E2BIG:
            raise
        size = sum(map(len, argv)) + sum(len(name) + len(value) for name, value in program.environment.pairs)
        problem = f"the command and its environment, {size:,} bytes, are too long for the system; use a file"
        raise OSError(exc.errno, problem) from None


def _find(name: bytes, path: bytes | None) -> bytes:
    """Returns where a program is, as execvp(3) looks for it; raises FileNotFoundError or PermissionError."""
    if b"/" in name:
        return name
    problem = errno.ENOENT
    for directory in (_DEFAULT_PATH if path is None else path).split(b":"):
        candidate = (directory or b".") + b"/" + name
        try:
            is_file = stat.S_ISREG(os.stat(candidate).st_mode)
        except OSError:
            continue
        if is_file and os.access(candidate, os.X_OK):
            return candidate
        problem = errno.EACCES
    raise OSError(problem, os.strerror(problem), to_text(name))


def file_of(data: bytes) -> int:
    """Returns a file with these bytes, at its beginning."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            return os.dup(file.fileno())
    low = os.memfd_create("script", os.MFD_CLOEXEC)
    fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)  # 0 to 2 may be free: they are what the program is given anew
    os.close(low)
    written = 0
    while written < len(data):
        written += os.write(fd, data[written:])
    return fd


def _read_file(fd: int) -> tuple[object, ...]:
    """Makes the program read a file from its beginning: opened again, it has its own position."""
    if hasattr(os, "memfd_create"):
        return (_OPEN, 0, f"/proc/self/fd/{fd}", os.O_RDONLY, 0)
    return (_DUP2, fd, 0)


def _inheritable() -> list[int]:
    """Returns the descriptors above 2 that a program would inherit; Python's own are not among them (PEP 446)."""
    found = []
    for name in os.listdir(_DESCRIPTORS):
        with suppress(OSError):  # the one that lists them
            if (fd := int(name)) > 2 and os.get_inheritable(fd):
                found.append(fd)
    return found


def wait_readable(fd: int, timeout: float | None) -> None:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    poller.poll(None if timeout is None else max(1.0, timeout * 1000))
