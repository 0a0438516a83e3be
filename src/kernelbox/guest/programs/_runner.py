"""The runner of a guarded kernel: the process that starts the commands which a host has approved, and no others.

It is forked from the kernel before any user code has run, and before the kernel is shut in. The kernel can start
no program; it sends the runner a request. The runner starts that program if a host has sealed it, once for each seal.
The key of the seals is made here. Hosts ask for it over a socket of their own, which the kernel cannot connect to, and
its memory is hidden from the kernel.

It serves until the kernel has ended, and then ends all that it has started.
"""

from __future__ import annotations

import json
import socket
import traceback
from _operator import _compare_digest
from dataclasses import replace
from socket import socket as Socket
from typing import Any, NoReturn

from kernelbox.guest._process_title import show_role
from kernelbox.guest._process_tree import SINCE_BOOT, become_subreaper, begun_since, kill_descendants, signal_all
from kernelbox.guest._stdlib import contextlib, fcntl, os, select, signal, stat, time
from kernelbox.guest.output._peers import is_same_user
from kernelbox.guest.programs._child import file_of, spawn
from kernelbox.guest.programs._program import Program
from kernelbox.guest.programs._program_request import LONGEST, ProgramRefused, ProgramRequest
from kernelbox.guest.programs._runner_bash import MOVED, LastingBash, describe, go_to
from kernelbox.guest.walls._system_calls import close_but, hide_memory
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._questions import RUNNER_KEY_SIZE, seal_of

keep_builtins(globals())

# Bytes of a message to the runner; what is long is in a file that comes with it.
_LONGEST_MESSAGE = 4096

# Descriptors that come with one: where to answer, the request, and two for the output.
_MOST_DESCRIPTORS = 4


def run(kernel_id: str, channel: Socket, listener: Socket, log: int, ready: int) -> NoReturn:
    """Makes this process the runner of its parent; says through `ready` that it serves. Never returns."""
    try:
        close_but((0, 1, 2, channel.fileno(), listener.fileno(), log, ready))
        show_role("runner")
        hide_memory()
        os.setsid()  # or the kernel, which leads a session, could give it and what it starts a terminal
        become_subreaper()
        Runner(kernel_id, channel, listener, os.getppid()).serve(ready)
    except BaseException:  # noqa: BLE001  # nothing above this frame belongs to the runner
        with contextlib.suppress(OSError), open(log, "a", closefd=False) as file:
            traceback.print_exc(file=file)
    finally:
        os._exit(1)


class Runner:
    """Starts what was approved; knows what it has started, and which seals are spent."""

    def __init__(self, kernel_id: str, channel: Socket, listener: Socket, kernel: int) -> None:
        self._kernel_id = kernel_id
        self._channel = channel
        self._listener = listener
        self._kernel = os.pidfd_open(kernel)
        self._key = os.urandom(RUNNER_KEY_SIZE)
        self._spent: set[str] = set()
        self._controls: dict[int, tuple[Socket, int]] = {}  # by descriptor: where a child's end is reported, the child
        self._began: dict[int, float] = {}
        self._nothing, self._null = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
        self._bash = LastingBash(self._close_in_fork)
        for fd, end in enumerate((self._nothing, self._null, self._null)):
            os.dup2(end, fd)
        os.chdir("/")
        self._wake, wakes = os.pipe()
        for end in (self._wake, wakes):
            os.set_blocking(end, False)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        channel.setblocking(False)
        listener.setblocking(False)

    def serve(self, ready: int) -> None:
        """Serves until the kernel has ended."""
        os.write(ready, b"x")
        os.close(ready)
        while True:
            poller = select.poll()
            for fd in (self._channel.fileno(), self._listener.fileno(), self._kernel, self._wake, *self._controls):
                poller.register(fd, select.POLLIN)
            for fd, event in poller.poll():
                if fd == self._kernel:
                    self._leave()
                elif fd == self._channel.fileno():
                    self._take(closed=bool(event & select.POLLHUP))
                elif fd == self._listener.fileno():
                    self._tell_key()
                elif fd == self._wake:
                    os.read(fd, 4096)
                elif fd in self._controls:
                    self._heed(fd, closed=bool(event & select.POLLHUP))
            self._reap()

    def _take(self, *, closed: bool) -> None:
        """Takes one message of the kernel's, or of a process that it forked; leaves if they all have `closed` their
        ends, which a message of no bytes does not tell."""
        room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
        try:
            data, ancillary, _, _ = self._channel.recvmsg(_LONGEST_MESSAGE, room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        fds = [fd for level, kind, raw in ancillary for fd in _descriptors(level, kind, raw)]
        if not data and not fds and closed:
            self._leave()
        control = Socket(fileno=fds.pop(0)) if fds and stat.S_ISSOCK(os.fstat(fds[0]).st_mode) else None
        try:
            self._do(json.loads(data), control, fds)
        except ProgramRefused as exc:
            _answer(control, "refused", str(exc))
        except OSError as exc:
            _answer(control, *describe(exc))
        except Exception as exc:  # noqa: BLE001  # the runner goes on, no matter what the kernel sends
            _answer(control, "refused", f"the runner does not understand the request ({type(exc).__name__})")
        finally:
            for fd in fds:
                os.close(fd)
            if control is not None and control.fileno() not in self._controls:
                control.close()

    def _do(self, request: list[Any], control: Socket | None, fds: list[int]) -> None:
        match request:
            case ["start", bool() as has_out, bool() as has_err] if control is not None:
                wanted, outputs = fds[0], fds[1:]
                out = outputs.pop(0) if has_out else self._null
                err = outputs.pop(0) if has_err else self._null
                self._start(_read(wanted), control, out, err)
            case ["bash"] if control is not None:
                self._run_bash(_read(fds[0]), control, fds[1], fds[2])
            case ["look"]:
                directory = self._bash.look()
                _answer(control, "bash", directory is not None, os.fsdecode(directory or b""))
            case ["interrupt"]:
                self._bash.interrupt()
            case ["kill", float() as since]:
                older = {pid for pid, began in self._began.items() if began < since}
                signal_all(begun_since(since, older | {self._bash.pid}), signal.SIGKILL)
                if self._bash.bash:
                    signal_all(begun_since(since, set(), of=self._bash.bash), signal.SIGKILL)
            case _:
                raise ProgramRefused("the runner does not understand the request")

    def _start(self, data: bytes, control: Socket, out: int, err: int) -> None:
        request = ProgramRequest.decode(data)
        if request.kind == "bash":
            raise ProgramRefused("bash cells run in the kernel's bash")
        program = request.program()
        self._spend(request, program, with_changes=True)
        for fd in (out, err):
            if fd != self._null:
                _require_write_only(fd)
        stdin = self._nothing if program.stdin is None else file_of(program.stdin)
        os.lseek(stdin, 0, os.SEEK_SET)
        ends = enumerate((stdin, out, err))
        actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in ends]
        try:
            if program.directory is None or not go_to(program.directory):
                raise ProgramRefused(MOVED)
            pid = spawn(replace(program, directory=None), actions)  # where this process is now
        finally:
            os.chdir("/")
            if stdin != self._nothing:
                os.close(stdin)
        self._began[pid] = time.clock_gettime(SINCE_BOOT)
        control.setblocking(False)
        self._controls[control.fileno()] = control, pid
        _answer(control, "started", pid)

    def _run_bash(self, data: bytes, control: Socket, out: int, err: int) -> None:
        request, directory = ProgramRequest.decode(data), self._bash.look()
        if request.kind != "bash":
            raise ProgramRefused("only bash cells run in the kernel's bash")
        if self._bash.busy:
            raise ProgramRefused("bash still runs another cell")
        program = request.program(directory)
        self._spend(request, program, with_changes=directory is None)
        for fd in (out, err):
            _require_write_only(fd)
        self._bash.run(program, control, out, err, fresh=directory is None)

    def _spend(self, request: ProgramRequest, program: Program, *, with_changes: bool) -> None:
        """Raises ProgramRefused unless a host has accepted this very program, and it was not started for that yet."""
        shown = program.show(with_changes=with_changes)
        seal = seal_of(self._key, request.execution_id, request.number, request.tool_name, shown)
        if not _compare_digest(request.seal.encode(), seal.encode()):
            raise ProgramRefused("no application has approved this command as it is")
        if seal in self._spent:
            raise ProgramRefused("it has been started once for this approval")
        self._spent.add(seal)

    def _heed(self, fd: int, *, closed: bool) -> None:
        """Takes a signal that the kernel sends to a child or its process group. All else is ignored."""
        control, pid = self._controls[fd]
        data = b""
        try:
            data = control.recv(64)
            said = json.loads(data) if data else None
        except BlockingIOError:
            return
        except (OSError, ValueError):
            said = None
        if not data and closed:
            del self._controls[fd]
            control.close()
        match said:
            case [int() as number, bool() as group] if pid in self._began and number in signal.valid_signals():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, number) if group else os.kill(pid, number)

    def _tell_key(self) -> None:
        """Tells a host the key, and whose runner this is: a cell can move the sockets of others to its own directory.

        The kernel, and what it forks, cannot make a socket that connects.
        """
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            with client:
                if is_same_user(client):
                    client.sendall(self._kernel_id.encode() + self._key)

    def _reap(self) -> None:
        """Reports the children that have ended. Children that nobody waits for are orphans of others."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                self._began.pop(pid, None)
                self._bash.note_end(pid)
                for fd, (control, child) in list(self._controls.items()):
                    if child == pid:
                        _answer(control, "ended", os.waitstatus_to_exitcode(status))
                        del self._controls[fd]
                        control.close()

    def _close_in_fork(self) -> None:
        for each in (self._channel, self._listener, *(control for control, _ in self._controls.values())):
            each.close()
        for fd in (self._kernel, self._wake):
            os.close(fd)

    def _leave(self) -> NoReturn:
        kill_descendants()
        os._exit(0)


def _read(fd: int) -> bytes:
    """Reads a request from a file of the kernel, once."""
    size = os.fstat(fd).st_size
    if not stat.S_ISREG(os.fstat(fd).st_mode) or size > LONGEST:
        raise ProgramRefused("what it was asked for is too long")
    parts, at = [], 0
    while at < size and (part := os.pread(fd, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _require_write_only(fd: int) -> None:
    """Raises ProgramRefused for what a program could read: some programs take commands from where they write to.

    They would open a terminal again by its name, and take what is typed there.
    """
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY or os.isatty(fd):
        raise ProgramRefused(
            "a cell has put something that can be read in the place of stdout or stderr; it was not run"
        )


def _answer(control: Socket | None, *said: object) -> None:
    if control is not None:
        with contextlib.suppress(OSError):
            control.send(json.dumps(said).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def _descriptors(level: int, kind: int, raw: bytes) -> list[int]:
    if (level, kind) != (socket.SOL_SOCKET, socket.SCM_RIGHTS):
        return []
    return [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw) - len(raw) % 4, 4)]
