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

from kernelbox.guest._descriptors import close, close_each, close_many, receive, take_socket
from kernelbox.guest._process_tree import start_time
from kernelbox.guest.birth._child_kernel import ChildKernel, identify
from kernelbox.guest.birth._keeper import Keeper, appoint_keeper
from kernelbox.guest.birth._listener import TemplateListener
from kernelbox.guest.birth._pending import PendingChild, PendingRequest
from kernelbox.guest.birth._specialize import READY, READY_WITH_KEEPER, Birth, Guard, specialize
from kernelbox.guest.output._peers import is_same_user
from kernelbox.wire._framing import ProtocolError, encode
from kernelbox.wire._messages import Message, Refused, Spawn, Spawned

if TYPE_CHECKING:
    from kernelbox.guest.birth._enclosing_srt import EnclosingSrt
    from kernelbox.guest.birth._sandboxes import Sandboxes
    from kernelbox.guest.walls._maker import Made

# A request comes in one piece; an opener that stops in the middle of it must not stop us.
_CLIENT_PATIENCE = 5.0

# How often to look for kernels that have lost their directory.
_CHECK_EVERY = 1.0

# The opener, who binds the socket, lets as many wait.
_BACKLOG = 128

# What stays open here for each kernel: what both of its pipes are read by, its directory, its lifeline; in a sandbox
# its first process, what keeps that alive, and what tells it that we are there.
_FILES_PER_KERNEL, _FILES_PER_SANDBOX = 4, 3

# And for each whose limits are looked after: its state file, its working directory, and a directory in that.
_FILES_PER_WATCH = 3

# And for one that has not reported yet: its opener's connection, what it reports through, its state file.
_FILES_PER_CHILD = 3

# For one whose sandbox is being made all that came with the request, its opener's connection, and pipes.
_FILES_PER_REQUEST = 18

# What else is open here at the most, while a request is granted: our own, what came with it, and three pipes.
_FILES_OF_OWN = 32

# What comes with a request before the lifeline; Spawn names them.
_DESCRIPTORS = 6


class Template:
    """Forks kernels on request and keeps them. Without a listener it is cold: it takes one request, from `sock` itself.

    One that is to make sandboxes forks kernels into those, and no others.
    """

    def __init__(self, sock: socket.socket, listener: TemplateListener | None, idle_timeout: float) -> None:
        self._socket = sock
        self._listener = listener
        self._srt: EnclosingSrt | None = None
        self._sandboxes: Sandboxes | None = None
        self._pid = os.getpid()
        self._idle_timeout = idle_timeout
        self._keeper = Keeper()
        self._clients: dict[int, socket.socket] = {} if listener else {sock.fileno(): sock}
        self._pending: dict[int, PendingChild] = {}  # by the descriptor that they report through
        self._used_at = time.monotonic()
        self._checked_at = time.monotonic()
        self._refusal = ""
        self._wake_read, self._wake_write = -1, -1
        self._files_limit = _raise_files_limit()

    def make_sandboxes(self, srt: EnclosingSrt | None) -> None:
        """Has kernels sandboxed from now on; in srt, if we run in that."""
        from kernelbox.guest.birth._sandboxes import NoSandbox, Sandboxes

        self._srt = srt
        try:
            self._sandboxes = Sandboxes(self._keeper, srt)
        except NoSandbox as exc:
            self._refusal = str(exc)

    def run(self, modules: list[str]) -> None:
        """Serves until it is of no more use."""
        if self._listener is not None and not self._refusal:
            try:
                from kernelbox.guest.birth._warmup import preload

                preload(modules)
            except Exception as exc:  # noqa: BLE001  # any module of the user's; told to the opener of a kernel
                traceback.print_exc()
                self._refusal = f"the template could not be preloaded: {type(exc).__name__}: {exc}"
        if self._sandboxes is not None and not self._refusal:
            self._sandboxes.start_maker()
        self._wake_read, self._wake_write = _wake_on_child_death()  # not before: a module's event loop would take it
        self._used_at = time.monotonic()
        while not self._is_done():
            self._serve_once()

    def _is_done(self) -> bool:
        if self._keeper.kernels or self._pending or (self._sandboxes is not None and self._sandboxes.are_awaited):
            return False
        if self._listener is None or self._socket.fileno() < 0:
            return not self._clients
        idle = time.monotonic() - self._used_at
        return (idle > self._idle_timeout or not self._listener.is_ours) and self._listener.leave(self._socket)

    def _serve_once(self) -> None:
        """Waits for something to happen and sees to it."""
        poller = select.poll()
        kept = [fd for kernel in self._keeper.kernels.values() for fd in kernel.watched]
        maker = self._sandboxes.link if self._sandboxes is not None else -1
        watched = [self._wake_read, *self._clients, *self._pending, *kept, *([maker] if maker >= 0 else [])]
        if self._listener is not None and self._socket.fileno() >= 0:
            watched.append(self._socket.fileno())
        for fd in watched:
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(min(self._idle_timeout, _CHECK_EVERY, self._keeper.patience) * 1000):
            if fd == self._wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
            elif fd in self._pending:
                self._answer_opener(fd, self._pending.pop(fd))
            elif fd == maker:
                self._take_sandbox()
            elif fd in self._clients:
                self._take_request(self._clients.pop(fd))
            elif fd == self._socket.fileno():
                self._accept()
            else:
                self._keeper.heed(fd)
        self._keeper.look()
        self._keeper.reap()
        dismissed = self._listener is not None and not self._listener.is_ours  # by `wipe`, which waits for us to leave
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
        self._used_at = time.monotonic()
        try:
            request, fds = receive(client)
        except (OSError, ProtocolError):
            traceback.print_exc()  # the opener vanished or spoke nonsense; it sees the connection end
            client.close()
            return
        refusal = self._refuse(request, fds)
        if refusal or not isinstance(request, Spawn):
            _answer(client, Refused(refusal))
            close_each(*fds)
        elif self._sandboxes is None:
            self._grant(PendingRequest(request, fds, client))
        elif not self._sandboxes.ask(PendingRequest(request, fds, client)):
            self._retire()
        if self._refusal:
            self._used_at = -self._idle_timeout  # of no use: the next opener starts another

    def _take_sandbox(self) -> None:
        assert self._sandboxes is not None
        taken = self._sandboxes.take()
        if taken is None:
            self._retire()
            return
        self._grant(*taken)

    def _retire(self) -> None:
        """Serves nobody any more, because the maker has ended, and another would be in the last kernel's sandbox.

        Who waits for an answer gets none, starts another template, and asks that. The socket is shut down, because
        programs between srt and us have it, too.
        """
        assert self._sandboxes is not None
        self._sandboxes.dismiss_maker()
        self._sandboxes.leave_waiting()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.setblocking(False)
            while True:
                self._socket.accept()[0].close()
        self._socket.close()

    def _grant(self, asked: PendingRequest, made: Made | None = None) -> None:
        """Forks a child, or says why that cannot be done."""
        try:
            refusal = self._fork(asked, made)
        except OSError as exc:
            refusal = f"its process could not be made: {exc}"
        if refusal:
            _answer(asked.client, Refused(refusal))
        if made is not None:
            if refusal and self._sandboxes is not None:
                self._sandboxes.give_up(made)
            close(made.told)
        self._used_at = time.monotonic()
        asked.close()

    def _refuse(self, request: Message, fds: list[int]) -> str:
        """Returns why a request cannot be granted, "" if it can."""
        if self._refusal:
            return self._refusal
        if self._is_full():
            kept = len(self._keeper.kernels)
            return f"its template's limit of open files allows no more than {kept} kernels; raise its limit (ulimit -n)"
        if not isinstance(request, Spawn):
            return f"a keeper takes no {type(request).__name__}"
        if request.argv and self._listener is not None:
            return "a template forks kernels and runs no other programs"
        if request.sandbox == (self._sandboxes is None):
            return f"this template forks {'plain' if self._sandboxes is None else 'sandboxed'} kernels only"
        if len(fds) != _DESCRIPTORS + request.lifeline + len(request.groups) + request.sandbox + 2 * request.guard:
            return f"{len(fds)} descriptors came with the request"
        return ""

    def _is_full(self) -> bool:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return False
        watched = sum(kept.watch is not None for kept in self._keeper.kernels.values())
        each = _FILES_PER_KERNEL + (self._sandboxes is not None) * _FILES_PER_SANDBOX
        taken = len(self._keeper.kernels) * each + watched * _FILES_PER_WATCH
        taken += len(self._clients) + len(self._pending) * (each + _FILES_PER_CHILD)
        taken += len(self._sandboxes or ()) * _FILES_PER_REQUEST
        return taken + _FILES_OF_OWN > limit

    def _fork(self, asked: PendingRequest, made: Made | None) -> str:
        """Forks a child; returns why it could not be done, "" if it was."""
        request, client = asked.request, asked.client
        listener, directory, state, log, environment, opening, *rest = asked.fds
        lifeline, rest = rest[: request.lifeline], rest[request.lifeline :]
        groups, rest = rest[: len(request.groups)], rest[len(request.groups) :]
        guard = rest[request.sandbox :]
        self._load_for(request, guarded=bool(guard))
        if self._listener is not None:
            self._listener.see(directory)
        entrances = {name: identify(name, directory) for name in request.entrances}
        if not any(entrances.values()):
            return "the files of the kernel are gone"
        pipes = [(-1, -1), (-1, -1)] if request.argv else [os.pipe(), os.pipe()]
        reports, report = os.pipe()
        outputs, inputs = (pipes[0][0], pipes[1][0]), (pipes[0][1], pipes[1][1])
        try:
            pid = self._fork_process(made)
        except Exception as exc:  # noqa: BLE001  # an OSError, or what sandboxes raise
            close_each(*outputs, *inputs, reports, report)
            return f"fork failed: {exc}" if isinstance(exc, OSError) else str(exc)
        if pid == 0:
            if made is None:  # else all but what the kernel needs is closed, when it has entered its sandbox
                self._close_all(client, directory, reports, opening, *lifeline)
            specialize(
                Birth(
                    *(request, listener, state, log, environment, outputs, inputs, report),
                    keeper=self._pid,
                    files_limit=self._files_limit,
                    groups=groups,
                    box=self._sandboxes.box(asked, made) if self._sandboxes is not None and made is not None else None,
                    guard=Guard(*guard) if guard else None,
                )
            )
        close_each(*inputs, report)
        line = os.dup(lifeline[0]) if lifeline else -1
        kept = ChildKernel(
            *(request.kernel_id, os.dup(directory), outputs, os.dup(opening), line, start_time(pid), entrances)
        )
        if made is not None:
            kept.first, kept.process, kept.alive, kept.here = made.first, made.process, asked.alive, asked.lifeline[1]
            asked.alive, asked.lifeline = -1, (asked.lifeline[0], -1)
        watched = os.dup(state) if request.limits else -1
        self._keeper.kernels[pid] = kept
        self._pending[reports] = PendingChild(pid, client, request, watched, kept)
        return ""

    def _fork_process(self, made: Made | None) -> int:
        """Forks, into the sandbox if there is one; raises OSError, or NoSandbox if there is none to fork into."""
        return os.fork() if made is None or self._sandboxes is None else self._sandboxes.fork(made)

    def _load_for(self, request: Spawn, *, guarded: bool) -> None:
        """Has ready what such a kernel needs; done once, because an import in each fork takes milliseconds."""
        if request.limits:
            pass
        if request.sandbox:
            pass
        if guarded:
            pass  # for the forks

    def _answer_opener(self, reports: int, unborn: PendingChild) -> None:
        """Tells the opener what a child reports: that it is ready, or why it could not be specialized."""
        said = os.read(reports, 4096)
        os.close(reports)
        if self._sandboxes is not None and self._listener is None:
            self._sandboxes.dismiss_maker()  # there is no second kernel
        if said == READY and self._keeper.kernels.get(unborn.pid) is unborn.kept:  # else its descriptors are closed
            close(unborn.kept.alive)
            unborn.kept.alive = -1
        if said in (READY, READY_WITH_KEEPER) or (unborn.request.argv and not said):  # exec(2) closes a program's pipe
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

    def _watch(self, unborn: PendingChild) -> str:
        """Has the limits of a kernel looked after from now on; returns why that cannot be done, "" if it can."""
        from kernelbox.guest.walls._limit_watch import LimitWatch

        spawn, kept = unborn.request, self._keeper.kernels.get(unborn.pid)
        try:
            if kept is None:
                raise ProcessLookupError("its process has ended")
            kept.watch = LimitWatch(
                *(unborn.pid, kept.first, spawn.limits, spawn.groups, unborn.state, kept.directory, spawn.cwd),
                *(spawn.disk_before, spawn.home),
                alone=self._listener is None,
            )
        except OSError as exc:
            close(unborn.state)
            return f"its limits cannot be kept: {exc}"
        return ""

    def _close_all(self, *others: socket.socket | int | None) -> None:
        """Closes, in a child, what belongs to the template and to its other kernels."""
        close_each(
            self._socket, *self._clients.values(), *others, *(unborn.client for unborn in self._pending.values())
        )
        signal.set_wakeup_fd(-1)
        kept = self._keeper.kernels.values()
        close_many({fd for kernel in kept for fd in kernel.descriptors})
        for kernel in kept:
            if kernel.watch is not None:
                kernel.watch.close()
        unborn_fds = [fd for reports, each in self._pending.items() for fd in (reports, each.state)]
        close_each(self._wake_read, self._wake_write, *unborn_fds, self._listener.directory if self._listener else -1)


def main(argv: list[str]) -> None:
    """Runs a template: `warm socket directory name idle_timeout [module …]`; or a keeper of one, `cold socket` for a
    kernel of ours and `program socket` for others. Socket and directory are descriptors. `warm-sandboxes` and
    `cold-sandboxes` are for sandboxed kernels.

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
    sock, listener, idle_timeout, srt = take_socket(int(fd)), None, 60.0, None
    if mode.startswith("warm"):
        directory, name, seconds, *rest = rest
        os.set_inheritable(int(directory), False)
        listener, idle_timeout = TemplateListener.take(int(directory), name), float(seconds)
    if mode == "srt":
        from kernelbox.guest.birth._enclosing_srt import EnclosingSrt

        name, seconds, token, variables, *rest = rest
        listener, idle_timeout, srt = (
            TemplateListener.unseen(name),
            float(seconds),
            EnclosingSrt.around_us(token, variables.split(",")),
        )
    if listener is not None:
        sock.listen(_BACKLOG)  # once more: hosts find us by SO_PEERCRED, which names the process that called it last
    template = Template(sock, listener, idle_timeout)
    if mode.endswith("sandboxes") or srt is not None:
        template.make_sandboxes(srt)
    template.run(rest)
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
    """Raises our own limit, some descriptors a kernel; returns the one that kernels get back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard
