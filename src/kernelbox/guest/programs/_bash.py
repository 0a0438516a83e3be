"""A real bash that lives as long as its kernel: directory, variables and functions last from cell to cell.

It is an interactive bash without a terminal: only an interactive shell survives SIGINT and goes back to its prompt. The
prompt is how it says that a cell has ended: PROMPT_COMMAND writes the exit status to a pipe. A cell is a file that bash
reads with `.`: there it does not count as interactive, and does not print `exit` when it exits. Between cells bash has
no stderr and traces nothing: what it would print about our own lines, or when the kernel dies, is not output. The
stderr of cells is behind another descriptor; what `exec 2>file` has made of it is put there when a cell has ended.
"""

from __future__ import annotations

import sys
import termios
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from subprocess import TimeoutExpired

from kernelbox.guest._descriptors import close, read_file
from kernelbox.guest._interrupts import held
from kernelbox.guest._process_tree import kill_descendants
from kernelbox.guest._stdlib import contextlib, fcntl, os, select, signal, time
from kernelbox.guest.programs._child import Child, file_of, start_own
from kernelbox.guest.programs._command_environment import directory_of
from kernelbox.guest.programs._program import Program, lasting_bash
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# How long bash may take to come back to its prompt after SIGINT, and again after its children were killed. Together
# they stay below the time after which the host gives up on interrupting politely.
_PATIENCE = 0.5


# The descriptors that bash and we share are beyond those that scripts choose for themselves (`exec 3>file`). Where a
# limit allows no such numbers they are the last but a few, which bash takes for itself.
_FIRST_DESCRIPTOR = 100
_LEFT_TO_BASH = 16

# How our own commands run: neither a trace nor a trap of the cell shows them.
_SILENTLY = b">/dev/null 2>&1"

# Our own commands are builtins, even if a cell defines functions and aliases of the same names.
_PRINTF, _SET = b"\\builtin printf", b"\\builtin set"

# A report is a word, the status and the flags of the shell. It enables what a cell has disabled of the builtins that we
# use. It ends the traces of the cell, the editing of lines, for which bash would wait for a terminal, and the history,
# which would have our lines in it.
_ENABLE = b"\\builtin enable . exec printf set trap"
_REPORT = (
    b'{ %b "%%%%s %%%%s %%%%s\\n" %%b "$?" "$-" >&%%d; %b; %b +xv +o emacs +o vi +o history; } '
    % (_PRINTF, _ENABLE, _SET)
    + _SILENTLY
)

# Says what a bash knows. What is read-only there, and the flags that our own commands need, are refused or put back.
_KNOWN = b"; ".join(
    b"\\builtin " + command
    for command in (
        *(b"declare -p", b"declare -f", b"alias -p", b"shopt -p", b"trap -p", b"umask -p"),
        b'printf "cd -- %q\\n" "$PWD"',
        b"set +o",  # last: with `set -e` bash would end at what is refused
    )
)

# Bash says what it knows, or learns it, within milliseconds.
_REMEMBER_PATIENCE = 5.0

# After the report of a cell comes the DEBUG trap that it has left, if there is one.
_DEBUGS = b"{ \\builtin trap -p DEBUG >&%d; } " + _SILENTLY


class BashUnavailable(RuntimeError):
    """Raised when there is no bash to run, or it cannot report any more."""


class Bash:
    """The kernel's bash, started at the first cell that needs it."""

    def __init__(self) -> None:
        self._process: Child | None = None
        self._statuses = -1
        self._pipe_in_bash = -1
        self._stderr_in_bash = -1
        self._script = -1
        self._report = b""
        self._last_status = 0
        self._flags = b""
        self._debugs = False  # whether there may be a DEBUG trap
        self._pidfd = -1
        self._line = b""
        self._unsettled = False  # a cell was begun and its end has not been seen
        self._remembered = b""  # what a bash knew that this process has a copy of

    @property
    def pid(self) -> int:
        """The process, 0 if there is none."""
        return self._process.pid if self._process else 0

    @property
    def waiting(self) -> bool:
        """Whether there is a bash that can run the next cell."""
        return self._process is not None and not self._unsettled and self._process.poll() is None and self._is_whole()

    def look(self) -> tuple[bool, bytes | None]:
        """Returns whether there is a bash that can run the next cell, and its directory."""
        return (True, directory_of(self.pid)) if self.waiting else (False, None)

    def run(self, program: Program, *, start: bool = True) -> int:
        """Runs a cell; returns its exit status. Ctrl-C is passed on to it.

        Without `start` only a bash that waits runs it: a new one would have another environment than was shown.
        """
        waits = self.waiting
        if not waits and not start:
            raise BashUnavailable("bash has ended since the cell was approved; it was not run")
        if not waits:
            said = self._what_became()
            self._start(lasting_bash(program.environment, program.directory))
            if self._remembered:
                self._recall()
            if said:
                print(f"[{said}; this is a new one]", file=sys.stderr, flush=True)
        assert self._process is not None
        try:
            self._unsettled = True
            self._send(self._line_for(program.words[-1]))
            status = self._wait(None)
            self._unsettled = False
        except KeyboardInterrupt:
            with held():  # a second interrupt waits until bash has got the first
                self._interrupt()
            raise
        if status is None:
            try:
                status = self._process.wait(_PATIENCE)
            except TimeoutExpired:
                raise BashUnavailable(
                    f"a cell has closed descriptor {self._pipe_in_bash} of bash, by which it tells the end of a cell; "
                    "bash was ended with all that it knew, and the next bash cell starts a new one"
                ) from None
            finally:
                self.close()
        return status

    @property
    def descriptors(self) -> list[int]:
        """What is open for the bash that runs."""
        if self._process is None:
            return []
        stdin = self._process.stdin
        return [self._statuses, self._script, self._pidfd, *([] if stdin is None else [stdin.fileno()])]

    def remember(self) -> bytes:
        """Returns what bash knows, as commands for another one: a process cannot be copied by one that is not it."""
        if not self.waiting:
            return self._remembered
        status, flags, debugs = self._last_status, self._flags, self._debugs
        fd = file_of(b"")
        try:
            place = b"/proc/%d/fd/%d" % (os.getpid(), fd)
            self._send(b"{ %b; } >%b 2>/dev/null; %b" % (_KNOWN, place, self._report))
            self._wait(_REMEMBER_PATIENCE)
            return read_file(os.dup(fd))
        finally:
            os.close(fd)
            self._last_status, self._flags, self._debugs = status, flags, debugs

    def renew(self, remembered: bytes) -> None:
        """Forgets the bash of the original, in a copy of the process; the next cell starts another, which recalls."""
        if self._process is not None:
            self._process.close_pipes()
            close(self._statuses, self._script, self._pidfd)
        self._process, self._pidfd = None, -1
        self._remembered = remembered

    def rename(self, kernel_id: str) -> None:
        """Gives what bash is to recall the id of another kernel."""
        if self._remembered:
            self._remembered += b"\nexport KERNELBOX_KERNEL_ID=%b\n" % kernel_id.encode()

    def _recall(self) -> None:
        """Gives a new bash what the remembered one knew."""
        fd, self._remembered = file_of(self._remembered), b""
        try:
            place = b"/proc/%d/fd/%d" % (os.getpid(), fd)
            self._send(b"{ \\builtin . %b; } </dev/null %b; %b" % (place, _SILENTLY, self._report))
            self._wait(_REMEMBER_PATIENCE)
            self._last_status = 0
        finally:
            os.close(fd)

    def _is_whole(self) -> bool:
        """Tells whether bash still has the descriptors that we share: without them a cell would not run, or not end."""
        descriptors = f"/proc/{self.pid}/fd"
        if not os.path.isdir(descriptors):
            return True  # it cannot be known
        try:
            script, statuses = (os.stat(f"{descriptors}/{fd}") for fd in (self._script, self._pipe_in_bash))
            os.stat(f"{descriptors}/{self._stderr_in_bash}")  # what a cell's `exec 2>file` has made of it
        except OSError:
            return False
        return os.path.samestat(script, os.fstat(self._script)) and os.path.samestat(statuses, os.fstat(self._statuses))

    def _what_became(self) -> str:
        """Says why a bash that has run cells cannot run another; "" if there was none."""
        if self._process is None:
            return ""
        if self._process.poll() is None and not self._unsettled:
            return "a bash cell has closed descriptors that bash needs"
        return "bash has ended since the last bash cell"

    def close(self) -> None:
        """Ends bash and everything it started that is still in its process group."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self._process.close_pipes()
        os.close(self._statuses)
        os.close(self._script)
        self._process = None

    def _start(self, bash: Program) -> None:
        try:
            with held():
                self._spawn(bash)
            self._wait(None)
            self._debugs = False
        except KeyboardInterrupt:
            self.close()  # it has not reached its first prompt
            raise

    def _spawn(self, bash: Program) -> None:
        self.close()
        self._line, self._unsettled = b"", False
        self._statuses, end = os.pipe()
        statuses, stderr, self._script = map(_move_up, (end, os.dup(2), file_of(b"")))
        try:
            self._process = start_own(bash, pipe_in=True, err="drop", inherit=(statuses, stderr, self._script))
        except BaseException as exc:
            os.close(self._statuses)
            os.close(self._script)
            if not isinstance(exc, FileNotFoundError):
                raise
            raise BashUnavailable("bash is not installed here; install it, or run the command with `!`") from exc
        finally:
            os.close(statuses)
            os.close(stderr)
        self._pidfd = os.pidfd_open(self._process.pid) if hasattr(os, "pidfd_open") else -1
        self._pipe_in_bash, self._stderr_in_bash = statuses, stderr
        self._last_status, self._flags = 0, b""
        self._report = _REPORT % (b"cell", statuses) + b"; " + _DEBUGS % statuses
        prompt = _REPORT % (b"prompt", statuses) + b" || \\builtin exit"  # a restricted shell can tell nothing more
        self._send(b"PS1= PS2=; unset MAILCHECK; set +H +m; readonly PROMPT_COMMAND='%b'" % prompt)

    def _line_for(self, code: bytes) -> bytes:
        """Writes a cell to the file that bash reads; returns the line that has it read, in the state that cells see."""
        # The status of the cell before: on the left of `&&` neither `set -e` nor a trap takes it for a failure.
        status = b"(exit %d) && :; " % self._last_status if self._last_status else b""
        begin, data = (b"{ %b} %b; " % (status, _SILENTLY) if status else b""), code
        if self._debugs or any(flag in self._flags for flag in b"xv"):
            # Where the file is read a DEBUG trap is in force with `set -T`, and can be removed there.
            begin, data = b"{ %b -T; } %b; " % (_SET, _SILENTLY), self._resume(status) + code
        os.ftruncate(self._script, 0)
        os.lseek(self._script, 0, os.SEEK_SET)
        written = 0
        while written < len(data):
            written += os.write(self._script, data[written:])
        os.lseek(self._script, 0, os.SEEK_SET)
        read = b"%b\\builtin . /dev/fd/%d </dev/null" % (begin, self._script)
        keep = b"{ exec %d>&2; } >/dev/null" % self._stderr_in_bash
        return b"{ %b; %b; %b; } 2>&%d" % (read, self._report, keep, self._stderr_in_bash)

    def _resume(self, status: bytes) -> bytes:
        """Returns how a cell begins that is traced; what comes before it must not be shown.

        It is in the first line, or the lines of the cell would not count from 1. Bash shows it with an error there.
        """
        flags = b"".join(b" -%c" % flag for flag in b"xv" if flag in self._flags)
        flags += b" %cT" % (b"-+"[b"T" not in self._flags])
        end = b"\n" if b"v" in self._flags else b"; "  # `set -v` shows what is read after its line
        return b"{ %b%b; %b} %b%b" % (_SET, flags, status, _SILENTLY, end)

    def _send(self, line: bytes) -> None:
        """Gives bash a line, whole: half of one would be half a command."""
        assert self._process is not None
        assert self._process.stdin is not None
        with held():
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _wait(self, timeout: float | None) -> int | None:
        """Waits for the prompt; returns the status of the cell, None if bash has ended; raises TimeoutError."""
        report, debugs = b"", False
        while (line := self._read_line(timeout)) is not None:
            if line.startswith(b"cell "):
                report = line
            elif line.startswith(b"prompt "):  # the only report of a cell that was interrupted
                _, status, self._flags = (report or line).split(b" ")
                self._debugs = debugs or not report
                self._last_status = int(status)
                return self._last_status
            else:
                debugs = True
        return None

    def _read_line(self, timeout: float | None) -> bytes | None:
        """Returns the next line that bash has written; what was read of it when an interrupt struck is kept."""
        while not self._line.endswith(b"\n"):
            poller = select.poll()
            poller.register(self._statuses, select.POLLIN)
            if self._pidfd >= 0:
                # The end of the pipe is not the end of bash: what it left in the background holds it open.
                poller.register(self._pidfd, select.POLLIN)
            ready = [fd for fd, _ in poller.poll(None if timeout is None else timeout * 1000)]
            if not ready:
                raise TimeoutError
            with held():
                byte = os.read(self._statuses, 1) if self._statuses in ready else b""
                self._line += byte
            if not byte:
                return None
        line, self._line = self._line, b""
        return line

    def _interrupt(self) -> None:
        """Brings bash back to its prompt. A bash that does not return is ended, with its variables."""
        assert self._process is not None
        self._wait_until_read()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        if self._settles():
            return
        kill_descendants(self._process.pid)  # they ignored it
        if self._settles():
            return
        self.close()
        print("[bash did not stop when interrupted; the next bash cell starts a new one]", file=sys.stderr)

    def _wait_until_read(self) -> None:
        """Waits until bash has taken its line: a signal that came before would leave the line to be run after it."""
        assert self._process is not None
        assert self._process.stdin is not None
        deadline = time.monotonic() + _PATIENCE
        with contextlib.suppress(OSError):
            while any(fcntl.ioctl(self._process.stdin, termios.FIONREAD, bytes(4))) and time.monotonic() < deadline:
                time.sleep(0.0005)

    def _settles(self) -> bool:
        """Tells whether bash returns to its prompt. It may write two statuses before: the cell's and the signal's."""
        try:
            if self._wait(_PATIENCE) is None:
                return False
            mark = os.urandom(8).hex()
            self._send(b"%b '%%s\\n' %b >&%d" % (_PRINTF, mark.encode(), self._pipe_in_bash))
            while (line := self._read_line(_PATIENCE)) is not None:
                if line == mark.encode() + b"\n":
                    self._unsettled = self._wait(_PATIENCE) is None
                    return not self._unsettled
        except (TimeoutError, OSError):
            pass
        return False


def _move_up(fd: int) -> int:
    most, _ = getrlimit(RLIMIT_NOFILE)
    lowest = _FIRST_DESCRIPTOR if most == RLIM_INFINITY else min(_FIRST_DESCRIPTOR, most - _LEFT_TO_BASH)
    moved: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(fd)
    return moved
