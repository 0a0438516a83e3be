"""The bash of a guarded kernel, which lasts from bash cell to bash cell: only the runner, and no cell, can type in it.

A process between the runner and bash gives bash its cells and waits for their ends, as an unguarded kernel does itself,
so that the runner goes on meanwhile.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from socket import socket as Socket
from typing import NoReturn

from kernelbox.guest._interrupts import hold_by
from kernelbox.guest._stdlib import contextlib, os, signal
from kernelbox.guest.programs._bash import Bash, BashUnavailable
from kernelbox.guest.programs._command_environment import make_environment
from kernelbox.guest.programs._program import Program, bash_program
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Bytes that say whether bash waits for the next cell, and its pid.
_STATE = 64

MOVED = "the directory of the command was moved or deleted after it was approved; it was not run"


class LastingBash:
    """The process that types, as the runner sees it; started at the first bash cell."""

    def __init__(self, close_in_fork: Callable[[], None]) -> None:
        self._close_in_fork = close_in_fork
        self._link: Socket | None = None
        self.pid = 0
        self.bash = 0
        self.waiting = self.busy = False

    def run(self, program: Program, control: Socket, out: int, err: int, *, fresh: bool) -> None:
        """Runs a cell in bash, in a new one if `fresh`. The result is sent through `control`."""
        if self._link is None:
            self._fork()
        assert self._link is not None
        self.waiting, self.busy = False, True
        pairs = [[os.fsdecode(name), os.fsdecode(value)] for name, value in program.environment.pairs]
        told = json.dumps([program.command, pairs, os.fsdecode(program.directory or b""), fresh]).encode()
        fd = os.memfd_create("cell", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(told)
            socket.send_fds(self._link, [b"x"], [fd, control.fileno(), out, err])
        finally:
            os.close(fd)

    def listen(self) -> None:
        """Reads what was reported about bash since the last time."""
        with contextlib.suppress(BlockingIOError):
            while self._link is not None and (told := self._link.recv(_STATE, socket.MSG_DONTWAIT)):
                self.waiting, self.bash = json.loads(told)
                self.busy = False

    def look(self) -> bytes | None:
        """Returns the directory of the bash that waits for its next cell; None if there is none."""
        self.listen()
        try:
            return os.readlink(b"/proc/%d/cwd" % self.bash) if self.waiting else None
        except OSError:  # it has ended, and the process that types in it has not noticed
            self.waiting = False
            return None

    def interrupt(self) -> None:
        """Brings bash back to its prompt."""
        if self.pid:
            os.kill(self.pid, signal.SIGINT)

    def note_end(self, pid: int) -> None:
        """Takes note that a child of the runner has ended. Without the process that types, there is no bash."""
        if pid == self.pid and self._link is not None:
            self._link.close()
            self._link, self.pid, self.bash, self.waiting, self.busy = None, 0, 0, False, False

    def _fork(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            signal.set_wakeup_fd(-1)
            ours.close()
            self._close_in_fork()
            _type(theirs)
        theirs.close()
        self._link = ours


class _Holding:
    """Holds SIGINT back between cells, and in stretches that must run as a whole."""

    def __init__(self) -> None:
        self._depth, self._came = 1, False
        signal.signal(signal.SIGINT, self._on_signal)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._came and not self._depth:
            self._came = False
            raise KeyboardInterrupt

    def begin(self) -> None:
        """Lets interrupts strike: what came before was meant for another cell."""
        self._came = False
        self._depth = 0

    def end(self) -> None:
        self._depth = 1

    def _on_signal(self, number: int, frame: object) -> None:
        if self._depth:
            self._came = True
        else:
            raise KeyboardInterrupt


def _type(link: Socket) -> NoReturn:
    """Runs the cells that the runner sends in one bash, until the runner has ended."""
    bash, holding = Bash(), _Holding()
    hold_by(holding)
    try:
        while True:
            data, fds, _, _ = socket.recv_fds(link, 1, 4, socket.MSG_CMSG_CLOEXEC)
            if not data:
                break
            cell, control, out, err = fds
            os.dup2(out, 1)
            os.dup2(err, 2)
            with open(cell, "rb") as file, Socket(fileno=control) as client:
                os.close(out)
                os.close(err)
                file.seek(0)
                said = _run(bash, holding, file.read())
                link.send(json.dumps([bash.waiting, bash.pid]).encode())
                with contextlib.suppress(OSError):
                    client.send(json.dumps(said).encode())
    finally:
        bash.close()
        os._exit(0)


def _run(bash: Bash, holding: _Holding, cell: bytes) -> list[object]:
    code, pairs, directory, fresh = json.loads(cell)
    environment = make_environment((os.fsencode(name), os.fsencode(value)) for name, value in pairs)
    if fresh:
        bash.close()
        if not go_to(os.fsencode(directory)):
            return ["refused", MOVED]
    try:
        holding.begin()
        status = bash.run(bash_program(code, environment, None), start=fresh)
        holding.end()
    except KeyboardInterrupt:
        holding.end()
        return ["ended", -signal.SIGINT]
    except BashUnavailable as exc:
        return ["missing", str(exc)]
    except OSError as exc:
        return describe(exc)
    else:
        return ["ended", status]


def describe(exc: OSError) -> list[object]:
    """Returns the error for a program that the system did not start. Its name may be bytes, which JSON cannot hold."""
    name = exc.filename
    return ["failed", exc.errno, exc.strerror, os.fsdecode(name) if isinstance(name, bytes | str) else None]


def go_to(directory: bytes) -> bool:
    """Goes to a directory by its real path; returns whether it is still the same."""
    try:
        os.chdir(directory)
        return os.getcwdb() == directory
    except OSError:
        return False
