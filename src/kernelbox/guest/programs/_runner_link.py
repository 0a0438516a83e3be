"""The way from a guarded kernel to its runner, and the commands that the runner has started for it.

The runner trusts nothing here: a cell can do all that this code does, and gets no further.
"""

from __future__ import annotations

import json
from _socket import AF_UNIX, MSG_DONTWAIT, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socketpair
from _socket import socket as Socket
from typing import Any

from kernelbox.guest._interrupts import held
from kernelbox.guest._stdlib import contextlib, os, select, signal, sys
from kernelbox.guest.programs._child import Child, Sink, file_of, start_own, wait_readable
from kernelbox.guest.programs._orphans import note_start
from kernelbox.guest.programs._program import Program
from kernelbox.guest.programs._program_request import ProgramRequest
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import ApprovalRejectedError

keep_builtins(globals())

# An answer is a line, with the path of a program in it at most.
_LONGEST_ANSWER = 64 * 1024

# How long bash, and the process that types in it, may take to stop after an interrupt; see guest/programs/_bash.py.
_BASH_PATIENCE = 2.0

ENDED = "its runner, the process that starts approved commands, has ended"

_link: RunnerLink | None = None


class RunnerLink:
    """The kernel's end of the way to the runner."""

    def __init__(self, channel: Socket) -> None:
        self.channel = channel
        self.ended = False

    def ask(self, what: list[object], fds: tuple[int, ...] = ()) -> Socket:
        """Sends a request; returns where the answers come."""
        ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        try:
            self._send(what, (theirs.fileno(), *fds))
        finally:
            theirs.close()
        return ours

    def tell(self, what: list[object]) -> None:
        """Sends a request that has no answer."""
        with contextlib.suppress(OSError):
            self._send(what, ())

    def _send(self, what: list[object], fds: tuple[int, ...]) -> None:
        raw = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
        try:
            self.channel.sendmsg([json.dumps(what).encode()], [(SOL_SOCKET, SCM_RIGHTS, raw)] if raw else [])
        except BrokenPipeError:
            raise RuntimeError(ENDED) from None


class Delegated(Child):
    """A command that the runner has started. What is known of it comes through `control`."""

    def __init__(self, pid: int, program: Program, pipes: dict[int, int], control: Socket) -> None:
        super().__init__(pid, program.words, pipes)
        self._control = control

    def poll(self) -> int | None:
        with held(), self._lock:
            if self.returncode is None:
                with contextlib.suppress(BlockingIOError):
                    said = receive(self._control, MSG_DONTWAIT)
                    self.returncode = said[1] if said else -signal.SIGKILL
                    self._control.close()
                    if not said:
                        note_end()
                        raise RuntimeError(ENDED)
            return self.returncode

    def _await_end(self, timeout: float | None) -> None:
        wait_readable(self._control.fileno(), timeout)

    def send_signal(self, number: int) -> None:
        self._signal(number, group=False)

    def signal_group(self, number: int) -> None:
        self._signal(number, group=True)

    def _signal(self, number: int, *, group: bool) -> None:
        if self.poll() is None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps([int(number), group]).encode())


class RunnerBash:
    """The bash of a guarded kernel, which the runner keeps, for one that asks for its cells to be run."""

    pid = 0  # it is not our child

    def __init__(self, link: RunnerLink) -> None:
        self._link = link

    def look(self) -> tuple[bool, bytes | None]:
        """Returns whether there is a bash that can run the next cell, and its directory."""
        answers = self._link.ask(["look"])
        try:
            _, waiting, directory = receive(answers)
        except ValueError:
            raise RuntimeError(ENDED) from None
        finally:
            answers.close()
        return waiting, os.fsencode(directory) if waiting else None

    def run(self, program: Program) -> int:
        """Runs a cell; returns its exit status. Ctrl-C is passed on to it."""
        with held():
            request = file_of(ProgramRequest.of(program).encode())
            try:
                answers = self._link.ask(["bash"], (request, 1, 2))
            finally:
                os.close(request)
        try:
            wait_readable(answers.fileno(), None)
            said = receive(answers)
        except KeyboardInterrupt:
            with held():  # a second interrupt waits until bash has got the first
                self._link.tell(["interrupt"])
                wait_readable(answers.fileno(), _BASH_PATIENCE)
            raise
        finally:
            answers.close()
        if not said:
            return -signal.SIGKILL
        check_answer(program, said)
        status: int = said[1]
        return status

    def close(self) -> None:
        """Leaves bash to the runner, which ends it with the kernel."""


def connect(channel: Socket) -> RunnerLink:
    """Makes the runner start every command from now on."""
    global _link
    _link = RunnerLink(channel)
    return _link


def is_there() -> bool:
    """Tells whether the runner lives; true for a kernel without one."""
    if _link is None:
        return True
    poller = select.poll()
    poller.register(_link.channel.fileno(), 0)
    return not _link.ended and not poller.poll(0)


def note_end() -> None:
    """Notes that the runner has ended. Its channel may be closed a moment later."""
    if _link is not None:
        _link.ended = True


def stop_programs(since: float) -> None:
    """Makes the runner kill what it has started at a time since boot or later, except bash."""
    if _link is not None:
        _link.tell(["kill", since])


def start(program: Program, *, out: Sink = "cell", err: Sink = "cell") -> Child:
    """Starts a program: as a child of this process or, in a guarded kernel, by its runner."""
    if _link is None:
        return start_own(program, out=out, err=err)
    ours: dict[int, int] = {}
    theirs: list[int] = []
    request = file_of(ProgramRequest.of(program).encode())
    try:
        given: list[int] = []
        for fd, sink in ((1, out), (2, err)):
            if sink == "pipe":
                ours[fd], end = os.pipe()
                theirs.append(end)
                given.append(end)
            elif sink == "cell":
                given.append(fd)
        note_start()  # before it begins to write
        control = _link.ask(["start", out != "drop", err != "drop"], (request, *given))
        try:
            said = receive(control)
            check_answer(program, said)
        except BaseException:
            control.close()
            raise
    except BaseException:
        theirs += ours.values()
        raise
    finally:
        for fd in (request, *theirs):
            os.close(fd)
    return Delegated(said[1], program, ours, control)


def check_answer(program: Program, said: list[Any]) -> None:
    """Raises the error of a program that the runner did not start."""
    match said:
        case ["refused", str(reason)]:
            raise ApprovalRejectedError(f"{program.command[:80]!r} was not started: {reason}")
        case ["failed", int(number), str(problem), *rest]:
            raise OSError(number, problem, *rest)
        case ["missing", str(problem)]:
            raise RuntimeError(problem)
        case []:
            raise RuntimeError(ENDED)


def receive(answers: Socket, flags: int = 0) -> list[Any]:
    """Returns the next answer; an empty one if the runner has ended."""
    data = answers.recv(_LONGEST_ANSWER, flags)
    said: list[Any] = json.loads(data) if data else []
    return said
