"""The template: a warm, single-threaded process that kernels are forked from. preload → **fork** → specialize.

It owns nothing but the knowledge of how its kernels end. When it dies they live on, and the next opener starts another.
It never reads secrets: the environment of a kernel passes through it as a descriptor.

Started cold, the same code forks one process without preloading. That is for systems that cannot use a warm template,
and for kernels that are other programs. The host's side is `host/engines/own/_warm_template.py`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback

from kernelbox.guest._descriptors import Descriptors, close
from kernelbox.guest._keeper_link import CAN_LINK, make_link
from kernelbox.guest._process_tree import start_time
from kernelbox.guest.birth._child_kernel import HELD, ChildKernel, PendingChild, identify
from kernelbox.guest.birth._forker import CannotFork, Forker, ForkerGone, ForkRequest
from kernelbox.guest.birth._keeper import Keeper
from kernelbox.guest.birth._listener import TemplateListener, receive
from kernelbox.guest.birth._spare import Spares
from kernelbox.guest.birth._specialize import READY, READY_WITH_KEEPER, Birth, specialize
from kernelbox.guest.output._peers import is_same_user
from kernelbox.wire._framing import ProtocolError, encode
from kernelbox.wire._messages import Foster, Measure, Message, Refused, Release, Spawn, Spawned, group_name

# A request comes in one piece; an opener that stops in the middle of it must not stop us.
_CLIENT_PATIENCE = 5.0

# How often to look for kernels that have lost their directory.
_CHECK_EVERY = 1.0

# What stays open here for each kernel whose limits are looked after: its state file, its working directory, and a
# directory in that.
_FILES_PER_WATCH = 3

# For one that has not reported yet: its opener's connection, what it reports through, its state file.
_FILES_PER_CHILD = 3

# For one whose sandbox is being made all that came with the request, its opener's connection, and pipes.
_FILES_PER_REQUEST = 20

# What else is open here at the most, while a request is granted: our own, what came with it, and three pipes.
_FILES_OF_OWN = 34


class Template:
    """Forks kernels on request and keeps them. Without a listener it is cold: it takes one request, from `sock` itself.

    The forker makes the processes.
    """

    def __init__(
        self,
        sock: socket.socket,
        listener: TemplateListener | None,
        idle_timeout: float,
        keeper: Keeper,
        forker: Forker,
    ) -> None:
        self._socket = sock
        self._listener = listener
        self._forker = forker
        self._pid = os.getpid()
        self._idle_timeout = idle_timeout
        self._keeper = keeper
        self._clients: dict[int, socket.socket] = {} if listener else {sock.fileno(): sock}
        self._pending: dict[int, PendingChild] = {}  # by the descriptor that they report through
        self._used_at = time.monotonic()
        self._checked_at = time.monotonic()
        self._refusal = forker.fault
        self._wake = Descriptors()
        self._files_limit = _raise_files_limit()
        self._spares = Spares(keeper, self._files_limit) if listener is not None and not forker.sandboxed else None

    def run(self, modules: list[str]) -> None:
        """Serves until it is no longer needed."""
        if self._listener is not None and not self._refusal:
            try:
                from kernelbox.guest.birth._warmup import preload

                preload(modules)
            except Exception as exc:  # noqa: BLE001  # any module of the user's; told to the opener of a kernel
                traceback.print_exc()
                self._refusal = f"the template could not be preloaded: {type(exc).__name__}: {exc}"
        if not self._refusal:
            self._forker.start()
        self._wake = _wake_on_child_death()  # not before: a module's event loop would take it
        self._used_at = time.monotonic()
        while not self._is_done():
            self._serve_once()
        if self._spares is not None:
            self._spares.end()

    def _is_done(self) -> bool:
        if self._keeper.kernels or self._pending or self._forker.waiting:
            return False
        if self._listener is None or self._socket.fileno() < 0:
            return not self._clients
        idle = time.monotonic() - self._used_at
        return (idle > self._idle_timeout or not self._listener.is_ours) and self._listener.leave(self._socket)

    def _serve_once(self) -> None:
        """Waits for something to happen and sees to it."""
        poller = select.poll()
        watched = [self._wake["read"], *self._clients, *self._pending, *self._forker.watched, *self._keeper.watched]
        if self._listener is not None and self._socket.fileno() >= 0:
            watched.append(self._socket.fileno())
        for fd in watched:
            poller.register(fd, select.POLLIN)
        spare_in = self._spare_in()
        patience = min(self._idle_timeout, _CHECK_EVERY, self._keeper.patience)
        happened = poller.poll(min(patience, spare_in) * 1000)
        if not happened and spare_in < patience and self._spares is not None:
            self._spares.make(self._close_all)
        for fd, _ in happened:
            if fd == self._wake["read"]:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, 4096)
            elif fd in self._pending:
                self._answer_opener(fd, self._pending.pop(fd))
            elif fd in self._forker.watched:
                self._take_prepared()
            elif fd in self._clients:
                self._take_request(self._clients.pop(fd))
            elif fd == self._socket.fileno():
                self._accept(fd)
            else:
                for door in self._keeper.heed(fd):
                    self._accept(door)
        self._keeper.look()
        dismissed = self._listener is not None and not self._listener.is_ours  # by `wipe`, which waits for us to leave
        if dismissed and self._spares is not None:
            self._spares.end()
        late = time.monotonic() - self._checked_at
        is_due = dismissed or late > (2 * _CHECK_EVERY if happened else _CHECK_EVERY)  # a client need not wait for that
        if is_due or any(fd == self._wake["read"] for fd, _ in happened):  # else no child has ended
            self._keeper.reap()
        if is_due:
            self._keeper.check()
            gc.collect()  # it is off here for the children's sake, and every request leaves a few kilobytes
            self._checked_at = time.monotonic()

    def _spare_in(self) -> float:
        """Returns how many seconds from now a spare should be made, if nothing else happens."""
        if self._spares is None or self._clients or self._pending or self._listener is None:
            return math.inf
        return self._spares.due_in(self._used_at) if self._listener.is_ours else math.inf

    def _accept(self, listener: int) -> None:
        """Takes a client that calls at our own socket, or at the door of a kernel."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(listener)) as called:
            client, _ = called.accept()
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
            message, fds = receive(client)
        except (OSError, ProtocolError):
            traceback.print_exc()  # the opener vanished or spoke nonsense; it sees the connection end
            client.close()
            return
        if isinstance(message, Foster | Release | Measure):
            self._keeper.adoptions.take_request(message, fds, client)
            return
        refusal = self._refuse(message, fds)
        if refusal or not isinstance(message, Spawn):
            _answer(client, Refused(refusal))
            close(*fds)
        else:
            given = Descriptors(dict(zip(message.descriptors, fds, strict=True)))
            self._prepare(ForkRequest(message, given, client))
        if self._refusal:
            self._used_at = -self._idle_timeout  # of no use: the next opener starts another

    def _prepare(self, request: ForkRequest) -> None:
        try:
            if self._forker.ask(request):
                self._grant(request)
        except ForkerGone:
            self._retire()

    def _take_prepared(self) -> None:
        try:
            request = self._forker.take()
        except ForkerGone:
            self._retire()
        else:
            self._grant(request)

    def _retire(self) -> None:
        """Stops serving, because the forker can make no more processes, and this process can have no other forker.

        A waiting opener gets no answer, starts another template and asks that one. The socket is shut down, because
        programs between srt and us have it open, too.
        """
        self._forker.stop()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.setblocking(False)
            while True:
                self._socket.accept()[0].close()
        self._socket.close()

    def _grant(self, request: ForkRequest) -> None:
        """Forks a child, or says why that cannot be done."""
        try:
            self._fork(request)
        except OSError as exc:
            refusal = f"its process could not be made: {exc}"
        except CannotFork as exc:
            refusal = str(exc)
        else:
            refusal = ""
        if refusal:
            _answer(request.opener, Refused(refusal))
            self._forker.give_up(request)
        self._used_at = time.monotonic()
        request.given.close_all()

    def _refuse(self, request: Message, fds: list[int]) -> str:
        """Returns why a request cannot be granted, "" if it can."""
        if self._refusal:
            return self._refusal
        if self._is_full():
            kept = len(self._keeper.kernels)
            return f"its template's limit of open files allows no more than {kept} kernels; raise its limit (ulimit -n)"
        if not isinstance(request, Spawn):
            return f"a keeper takes no {type(request).__name__}"
        if request.argv and (self._listener is not None or self._forker.sandboxed):
            return "a template forks kernels and runs no other programs"
        if request.is_sandboxed != self._forker.sandboxed:
            return f"this template forks {'sandboxed' if self._forker.sandboxed else 'plain'} kernels only"
        if len(fds) != len(request.descriptors):
            return f"{len(fds)} descriptors came with the request, and {len(request.descriptors)} names"
        if missing := _needed(request) - set(request.descriptors):
            return f"the request has no descriptor for {', '.join(sorted(missing))}"
        return ""

    def _is_full(self) -> bool:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return False
        each = self._forker.files_per_kernel
        taken = len(self._keeper.kernels) * each + len(self._keeper.limited) * _FILES_PER_WATCH
        taken += len(self._clients) + len(self._pending) * (each + _FILES_PER_CHILD)
        taken += self._forker.waiting * _FILES_PER_REQUEST
        return taken + _FILES_OF_OWN > limit

    def _fork(self, request: ForkRequest) -> None:
        """Forks a child; raises OSError or CannotFork."""
        spawn, given = request.spawn, request.given
        known = len(sys.modules)
        _load_for(spawn)
        if self._spares is not None and len(sys.modules) > known:
            self._spares.end()  # the next one has them, too
        if self._listener is not None:
            self._listener.see(given["directory"])
        entrances = {name: identify(name, given["directory"]) for name in spawn.entrances}
        if not any(entrances.values()):
            raise CannotFork("the files of the kernel are gone")
        if not spawn.argv:
            given.open_pipe("stdout", "stdout writer")
            given.open_pipe("stderr", "stderr writer")
            if CAN_LINK:
                for name, end in zip(("link", "link to keeper"), make_link(), strict=True):
                    given.keep(name, end)
        given.open_pipe("reports", "report")
        try:
            spare = 0 if self._spares is None else self._spares.give(spawn, given)
            pid = spare or self._forker.fork(request)
        except OSError as exc:
            raise CannotFork(f"fork failed: {exc}") from exc
        if pid == 0:
            entry = self._forker.entry(request)
            if entry is None:  # else all but what the kernel needs is closed, when it enters its sandbox
                request.opener.close()
                self._close_all()
                given.close("directory", "opening", "lifeline", "reports", "link", "door")
            specialize(Birth(spawn, given, self._pid, self._files_limit, entry))
        reports = given.take("reports")
        held = given.move(*(name for name in HELD if name != "state" or spawn.limits))
        kernel = ChildKernel(spawn.kernel_id, start_time(pid), entrances, held, request.first)
        kernel.groups = spawn.groups
        self._keeper.keep(pid, kernel)
        self._pending[reports] = PendingChild(pid, request.opener, spawn, kernel, was_spare=bool(spare))

    def _answer_opener(self, reports: int, child: PendingChild) -> None:
        """Tells the opener what a child reports: that it is ready, or why it could not be specialized."""
        said = os.read(reports, 4096)
        os.close(reports)
        if self._listener is None:
            self._forker.stop()  # there is no second kernel
        if said == READY:
            child.kernel.held.close("alive")  # from now on the kernel alone keeps its sandbox alive
        if said in (READY, READY_WITH_KEEPER) or (child.spawn.argv and not said):  # exec(2) closes a program's pipe
            if child.spawn.limits and (fault := self._watch(child)):
                self._keeper.kill(child.pid)
                _answer(child.opener, Refused(fault))
                return
            if child.pid in self._keeper.kernels:
                self._forker.note(child.kernel)
            if not _answer(child.opener, Spawned(child.pid, child.kernel.start_time)):
                self._keeper.kill(child.pid)  # the opener has gone, and no record leads to the process
            return
        self._keeper.kill(child.pid)
        if child.was_spare and not said:
            self._keeper.wait(child.pid)  # there must not be two of one kernel
            child.opener.close()  # it had been killed before; the opener asks again
            return
        reason = said.decode("utf-8", "replace") or "its process ended while it was being prepared"
        _answer(child.opener, Refused(reason))

    def _watch(self, child: PendingChild) -> str:
        """Begins to check the limits of a kernel; returns why that fails, "" if it does not."""
        from kernelbox.guest.walls._limit_watch import LimitWatch

        kernel = child.kernel
        try:
            if child.pid not in self._keeper.kernels:
                raise ProcessLookupError("its process has ended")
            state = kernel.held.take("state")
            try:
                directory, alone = kernel.held["directory"], self._listener is None
                watch = LimitWatch(child.spawn, child.pid, kernel.first, state, directory, alone=alone)
            except OSError:
                close(state)
                raise
            self._keeper.limit(child.pid, watch)
        except OSError as exc:
            return f"its limits cannot be kept: {exc}"
        return ""

    def _close_all(self) -> None:
        """Closes, in a child, what belongs to the template and to its other kernels."""
        for sock in (self._socket, *self._clients.values(), *(each.opener for each in self._pending.values())):
            sock.close()
        if self._spares is not None:
            close(*self._spares.descriptors)
        signal.set_wakeup_fd(-1)
        self._keeper.files.close_in_fork()
        close(*self._keeper.descriptors)
        for watch in self._keeper.limited.values():
            watch.close()
        self._wake.close_all()
        close(*self._pending)
        if self._listener is not None and self._listener.directory is not None:
            close(self._listener.directory)


def _needed(spawn: Spawn) -> set[str]:
    """Returns the names of the descriptors that must come with a request."""
    guard = ("filter", "runner") if spawn.is_guarded else ()
    log = () if spawn.argv else ("cells", "older cells")
    always = ("listener", "directory", "state", "log", "environment", "opening")
    return {*always, *log, *map(group_name, spawn.groups), *guard}


def _load_for(spawn: Spawn) -> None:
    """Imports what such a kernel needs, once: an import in each fork would take milliseconds."""
    if spawn.limits:
        import kernelbox.guest.walls._limit_watch
        import kernelbox.guest.walls._own_limits
    if spawn.is_guarded:
        import kernelbox.guest.programs._runner
        import kernelbox.guest.walls._guard  # noqa: F401  # for the forks


def _answer(client: socket.socket, message: Message) -> bool:
    """Sends the one answer that a client waits for; returns whether it was there to get it."""
    with client:
        try:
            client.sendall(encode(message))
        except OSError:
            return False
    return True


def _wake_on_child_death() -> Descriptors:
    """Returns a pipe that a dying child writes to."""
    pipe = Descriptors()
    pipe.open_pipe("read", "write")
    for fd in pipe.numbers:
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(pipe["write"], warn_on_full_buffer=False)
    return pipe


def _raise_files_limit() -> tuple[int, int]:
    """Raises our own limit, some descriptors a kernel; returns the one that kernels get back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard
