"""The template: a warm, single-threaded process that kernels are forked from. preload → **fork** → specialize.

It owns nothing but the knowledge of how its kernels end. When it dies they live on; the next opener starts another. It
never reads what is secret: the environment of a kernel passes through it as a descriptor.

Started cold, for one process and without preloading, the same code is the plain spawn of systems where no warm template
can be used, and of kernels that are programs of others.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING

from kernelbox.guest._descendants import start_time
from kernelbox.guest._descriptors import close, close_each, close_many, receive, take_socket
from kernelbox.guest._keeper import Keeper, appoint_keeper
from kernelbox.guest._kept import Kept, identify
from kernelbox.guest._peer import is_same_user
from kernelbox.guest._seat import Seat
from kernelbox.guest._specialize import READY, Birth, Box, Guard, preload, specialize
from kernelbox.guest._unborn import Unborn
from kernelbox.wire._framing import ProtocolError, encode
from kernelbox.wire._messages import Message, Refused, Spawn, Spawned

if TYPE_CHECKING:
    from kernelbox.guest._srt import Srt

# A request comes in one piece; an opener that stops in the middle of it must not stop us.
_CLIENT_PATIENCE = 5.0

# How often to look for kernels that have lost their directory.
_CHECK_EVERY = 1.0

# The opener, who binds the socket, lets as many wait.
_BACKLOG = 128

# What stays open here for each kernel: what both of its pipes are read by, its directory, its lifeline.
_FILES_PER_KERNEL = 4

# And for each whose limits are looked after: its state file, its working directory, and a directory in that.
_FILES_PER_WATCH = 3

# And for one that has not reported yet: its opener's connection, what it reports through, its state file, and a way to
# its maker.
_FILES_PER_UNBORN = 4

# What else is open here at the most, while a request is granted: our own, what came with it, and three pipes.
_FILES_OF_OWN = 32

# What comes with a request before the lifeline; Spawn names them.
_DESCRIPTORS = 6


class Template:
    """Forks kernels on request and keeps them. Without a seat it is cold: it takes one request, from `sock` itself.

    With `srt` it runs in that, and all its kernels are confined besides.
    """

    def __init__(self, sock: socket.socket, seat: Seat | None, idle_timeout: float, srt: Srt | None = None) -> None:
        self._socket = sock
        self._seat = seat
        self._srt = srt
        self._pid = os.getpid()
        self._idle_timeout = idle_timeout
        self._keeper = Keeper()
        self._keeper.meet_makers = self._meet_makers
        self._clients: dict[int, socket.socket] = {} if seat else {sock.fileno(): sock}
        self._unborn: dict[int, Unborn] = {}  # by the descriptor that they report through
        self._used_at = time.monotonic()
        self._checked_at = time.monotonic()
        self._refusal = ""
        self._lifeline: tuple[int, int] | None = None
        self._wake_read, self._wake_write = -1, -1
        self._files_limit = _raise_files_limit()

    def run(self, modules: list[str]) -> None:
        """Serves until it is of no more use."""
        if self._seat is not None:
            try:
                preload(modules)
            except Exception as exc:  # noqa: BLE001  # any module of the user's; told to the opener of a kernel
                traceback.print_exc()
                self._refusal = f"the template could not be preloaded: {type(exc).__name__}: {exc}"
        self._wake_read, self._wake_write = _wake_on_child_death()  # not before: a module's event loop would take it
        self._used_at = time.monotonic()
        while not self._is_done():
            self._serve_once()

    def _is_done(self) -> bool:
        if self._keeper.kernels or self._unborn:
            return False
        if self._seat is None:
            return not self._clients
        idle = time.monotonic() - self._used_at
        return (idle > self._idle_timeout or not self._seat.is_ours) and self._seat.leave(self._socket)

    def _serve_once(self) -> None:
        """Waits for something to happen and sees to it."""
        poller = select.poll()
        kept = [fd for kernel in self._keeper.kernels.values() for fd in kernel.watched]
        makers = {unborn.maker: unborn for unborn in self._unborn.values() if unborn.maker >= 0}
        watched = [self._wake_read, *self._clients, *self._unborn, *makers, *kept]
        if self._seat is not None:
            watched.append(self._socket.fileno())
        for fd in watched:
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(min(self._idle_timeout, _CHECK_EVERY, self._keeper.patience) * 1000):
            if fd == self._wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
            elif fd in self._unborn:
                self._answer_opener(fd, self._unborn.pop(fd))
            elif fd in makers:
                makers[fd].meet(self._keeper)
            elif fd in self._clients:
                self._take_request(self._clients.pop(fd))
            elif fd == self._socket.fileno():
                self._accept()
            else:
                self._keeper.heed(fd)
        self._keeper.look()
        self._keeper.reap()
        dismissed = self._seat is not None and not self._seat.is_ours  # by `wipe`, which waits for us to leave
        if dismissed or time.monotonic() - self._checked_at > _CHECK_EVERY:
            self._keeper.check()
            gc.collect()  # it is off here for the children's sake, and every request leaves a few kilobytes
            self._checked_at = time.monotonic()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._socket.accept()
            if not is_same_user(client):
                client.close()
                return
            client.settimeout(_CLIENT_PATIENCE)
            self._clients[client.fileno()] = client
            self._used_at = time.monotonic()

    def _take_request(self, client: socket.socket) -> None:
        """Takes the one request of a client. It is answered when the child has reported, or refused at once."""
        fds: list[int] = []
        try:
            request, fds = receive(client)
            refusal = self._refuse(request, fds) or self._fork(request, fds, client)
            if refusal:
                _answer(client, Refused(refusal))
        except (OSError, ProtocolError):
            traceback.print_exc()  # the opener vanished or spoke nonsense; it sees the connection end
            client.close()
        finally:
            self._used_at = time.monotonic()
            for fd in fds:
                close(fd)
        if self._refusal:
            self._used_at = -self._idle_timeout  # of no use: the next opener starts another

    def _refuse(self, request: Message, fds: list[int]) -> str:
        """Returns why a request cannot be granted, "" if it can."""
        if self._refusal:
            return self._refusal
        if self._is_full():
            kept = len(self._keeper.kernels)
            return f"its template's limit of open files allows no more than {kept} kernels; raise its limit (ulimit -n)"
        if not isinstance(request, Spawn):
            return f"a keeper takes no {type(request).__name__}"
        if request.argv and self._seat is not None:
            return "a template forks kernels and runs no other programs"
        if self._srt is not None and not request.sandbox:
            return "a template in srt forks sandboxed kernels only"
        if len(fds) != _DESCRIPTORS + request.lifeline + len(request.groups) + request.sandbox + 2 * request.guard:
            return f"{len(fds)} descriptors came with the request"
        return ""

    def _is_full(self) -> bool:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return False
        watched = sum(kept.watch is not None for kept in self._keeper.kernels.values())
        taken = len(self._keeper.kernels) * _FILES_PER_KERNEL + watched * _FILES_PER_WATCH
        taken += len(self._clients) + len(self._unborn) * (_FILES_PER_KERNEL + _FILES_PER_UNBORN)
        return taken + _FILES_OF_OWN > limit

    def _fork(self, request: Message, fds: list[int], client: socket.socket) -> str:
        """Forks a child; returns why it could not be done, "" if it was."""
        assert isinstance(request, Spawn)
        listener, directory, state, log, environment, opening, *rest = fds
        lifeline, rest = rest[: request.lifeline], rest[request.lifeline :]
        groups, rest = rest[: len(request.groups)], rest[len(request.groups) :]
        confinement, guard = rest[: request.sandbox], rest[request.sandbox :]
        self._load_for(request, guarded=bool(guard))
        if self._seat is not None:
            self._seat.see(directory)
        entrances = {name: identify(name, directory) for name in request.entrances}
        if not any(entrances.values()):
            return "the files of the kernel are gone"
        pipes = [(-1, -1), (-1, -1)] if request.argv else [os.pipe(), os.pipe()]
        reports, report = os.pipe()
        maker, told = os.pipe() if request.sandbox else (-1, -1)
        outputs, inputs = (pipes[0][0], pipes[1][0]), (pipes[0][1], pipes[1][1])
        try:
            pid = os.fork()
        except OSError as exc:
            close_each(*outputs, *inputs, reports, report, maker, told)
            return f"fork failed: {exc}"
        if pid == 0:
            if not request.sandbox:  # else all but what the kernel needs is closed, when there is one
                self._close_all(client, directory, reports, opening, *lifeline)
            specialize(
                Birth(
                    *(request, listener, state, log, environment, outputs, inputs, report),
                    keeper=self._pid,
                    files_limit=self._files_limit,
                    groups=groups,
                    box=self._box(confinement, told, client),
                    guard=Guard(*guard) if guard else None,
                )
            )
        close_each(*inputs, report, told)
        line = os.dup(lifeline[0]) if lifeline else -1
        kept = Kept(*(request.kernel_id, os.dup(directory), outputs, os.dup(opening), line, start_time(pid), entrances))
        watched = os.dup(state) if request.limits else -1
        self._unborn[reports] = Unborn(pid, client, request, watched, kept, maker)
        self._unborn[reports].take_in(self._keeper)
        return ""

    def _meet_makers(self) -> None:
        for unborn in self._unborn.values():
            if unborn.has_been_told_of:
                unborn.meet(self._keeper)

    def _load_for(self, request: Spawn, *, guarded: bool) -> None:
        """Has ready what such a kernel needs; done once, because an import in each fork takes milliseconds."""
        if request.limits:
            import kernelbox.guest._limits
            import kernelbox.guest._watch
        if request.sandbox:
            import kernelbox.guest._arming
            import kernelbox.guest._confine

            if self._lifeline is None:
                self._lifeline = os.pipe()
        if guarded:
            import kernelbox.guest._domain
            import kernelbox.guest._runner  # noqa: F401  # for the forks

    def _box(self, confinement: list[int], told: int, opener: socket.socket) -> Box | None:
        if told < 0 or self._lifeline is None:
            return None
        return Box(confinement[0], told, self._lifeline[0], self._srt, opener)

    def _answer_opener(self, reports: int, unborn: Unborn) -> None:
        """Tells the opener what a child reports: that it is ready, or why it could not be specialized."""
        said = os.read(reports, 4096)
        os.close(reports)
        if unborn.request.sandbox:
            unborn.meet(self._keeper)
            self._keeper.see_off(unborn.forked)  # so that the kernel is a child of ours
            if not unborn.pid:
                close_each(*unborn.kept.descriptors)
        if said == READY or (unborn.request.argv and not said):  # exec(2) closes the pipe of a program
            if unborn.request.limits and (fault := self._watch(unborn)):
                self._keeper.kill(unborn.pid)
                _answer(unborn.client, Refused(fault))
                return
            if self._srt is not None:
                self._srt.note(unborn.kept.directory, unborn.kept.start_time)
            if not _answer(unborn.client, Spawned(unborn.pid, unborn.kept.start_time)):
                self._keeper.kill(unborn.pid)  # the opener has gone, and no record leads to the process
            return
        close(unborn.state)
        self._keeper.kill(unborn.pid)
        reason = said.decode("utf-8", "replace") or "its process ended while it was being prepared"
        _answer(unborn.client, Refused(reason))

    def _watch(self, unborn: Unborn) -> str:
        """Has the limits of a kernel looked after from now on; returns why that cannot be done, "" if it can."""
        from kernelbox.guest._watch import Watch

        spawn, kept = unborn.request, self._keeper.kernels.get(unborn.pid)
        try:
            if kept is None:
                raise ProcessLookupError("its process has ended")
            kept.watch = Watch(
                *(unborn.pid, kept.first, spawn.limits, spawn.groups, unborn.state, kept.directory, spawn.cwd),
                *(spawn.disk_before, spawn.home),
                alone=self._seat is None,
            )
        except OSError as exc:
            close(unborn.state)
            return f"its limits cannot be kept: {exc}"
        return ""

    def _close_all(self, *others: socket.socket | int | None) -> None:
        """Closes, in a child, what belongs to the template and to its other kernels."""
        close_each(*(self._lifeline or ()))
        close_each(self._socket, *self._clients.values(), *others)
        for unborn in self._unborn.values():
            close_each(unborn.client, unborn.maker)
        signal.set_wakeup_fd(-1)
        kept = (*self._keeper.kernels.values(), *(unborn.kept for unborn in self._unborn.values()))
        close_many({fd for kernel in kept for fd in kernel.descriptors})
        for kernel in kept:
            if kernel.watch is not None:
                kernel.watch.close()
        unborn_fds = [fd for reports, each in self._unborn.items() for fd in (reports, each.state)]
        close_each(self._wake_read, self._wake_write, *unborn_fds, self._seat.directory if self._seat else -1)


def main(argv: list[str]) -> None:
    """Runs a template: `warm socket directory name idle_timeout [module …]`; or a keeper of one, `cold socket` for a
    kernel of ours and `program socket` for others. Socket and directory are descriptors.

    One that runs in srt, `srt socket name idle_timeout token variables [module …]`, has a deputy that starts it; srt
    passes the first three descriptors on and no others.
    """
    mode, fd, *rest = argv
    if mode != "srt" and os.fork() > 0:
        os._exit(0)  # the process that started us need not wait for us: init, or its subreaper, does
    _reset_signals()
    _take_name()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if mode == "program":
        appoint_keeper(int(fd))
    sys.argv = [f"kernelbox-template-{mode}"]
    sock, seat, idle_timeout, srt = take_socket(int(fd)), None, 60.0, None
    if mode == "warm":
        directory, name, seconds, *rest = rest
        os.set_inheritable(int(directory), False)
        seat, idle_timeout = Seat.take(int(directory), name), float(seconds)
    if mode == "srt":
        from kernelbox.guest._srt import Srt

        name, seconds, token, variables, *rest = rest
        seat, idle_timeout, srt = Seat.unseen(name), float(seconds), Srt.around_us(token, variables.split(","))
    if seat is not None:
        sock.listen(_BACKLOG)  # once more: hosts find us by SO_PEERCRED, which names the process that called it last
    Template(sock, seat, idle_timeout, srt).run(rest)
    os._exit(0)  # exit functions of preloaded modules are for the kernels to run


def _take_name() -> None:
    """Has a process that the loader has started called as the others are, and not by the loader's descriptor."""
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self/exe").startswith("/memfd:"):
            with open("/proc/self/comm", "w") as file:
                file.write(os.path.basename(sys.executable))


def _reset_signals() -> None:
    """Takes nothing over from the process that started us: nohup ignores SIGHUP, a shell may block others."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python itself starts
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _answer(client: socket.socket, message: Message) -> bool:
    """Sends the one answer that a client waits for; returns whether it was there to get it."""
    with client:
        try:
            client.sendall(encode(message))
        except OSError:
            return False
    return True


def _wake_on_child_death() -> tuple[int, int]:
    """Returns the two ends of a pipe that a dying child writes to."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read, write


def _raise_files_limit() -> tuple[int, int]:
    """Raises our own limit, four descriptors a kernel; returns the one that kernels get back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard
