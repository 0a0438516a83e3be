"""Who reads the sockets and the pipes: the main thread between cells, a helper thread while a cell runs.

A request is read, run and answered by the main thread alone: a short cell costs no switch between threads. An alarm
set at its beginning wakes the helper if the cell takes longer, and the helper then serves until the cell has ended.
While tasks are alive in the background the main thread is in their event loop, and the helper serves all the time.

The helper can be stopped between cells and started again, which loses nothing: what arrives meanwhile waits in the
sockets and pipes.
"""

from __future__ import annotations

import errno
import math
import sys
import traceback
from _socket import socket as Socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelbox.guest._alarm import Alarm
from kernelbox.guest._descriptors import close, put_behind
from kernelbox.guest._memory_reserve import spend_reserve
from kernelbox.guest._stdlib import contextlib, os, select, threading, time
from kernelbox.guest.output._peers import Peer, is_same_user
from kernelbox.guest.programs._orphans import Orphans
from kernelbox.guest.programs._runner_link import ENDED
from kernelbox.guest.serve._identity import Identity
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import ProtocolError

if TYPE_CHECKING:
    from kernelbox.guest.serve._kernel_process import KernelProcess

keep_builtins(globals())


# A reader sees text this soon.
REST = 0.02

# While programs run the pipes are read as they fill, up to this many times within a REST: a program that writes more
# often, in small pieces, would waste our time and the reader's.
_EAGER_READS = 100

# How often a kernel without requests makes sure that a client could still reach it.
CHECK = 15.0

# While a cell runs, lines that it has begun and not ended are looked for this often.
TICK = 0.02

# The same between cells, while a client watches what threads and tasks write.
_WATCHED_TICK = 0.25

# While a cell runs, orphans are looked for this often.
_LOOK = 0.25

# When a cell has used up the descriptors a client cannot be let in; it stays in line, and is asked for this often.
_DEAFNESS = 0.1

# A thread that has left Python's hands is gone in microseconds, unless the machine is very busy.
_EXIT_PATIENCE = 1.0


# With fewer open files than this no kernel is started.
_FEW_FILES = 64

# What eventfd(2) takes: a number of eight bytes.
_ONE = (1).to_bytes(8, sys.byteorder)


class Waker:
    """Ends the wait of a thread, by eventfd(2), or by a pipe where the system has no eventfd."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.fd = self._write = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)

    def renew(self) -> None:
        """Puts a new one behind the same number, in a copy of the process."""
        put_behind(self.fd, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has been woken often enough
            os.write(self._write, _ONE)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)


class IO:
    """Watches the listener, the peers and the pipes, and hands what arrives to the kernel."""

    def __init__(self, kernel: KernelProcess, identity: Identity, waker: Waker, main_waker: Waker) -> None:
        """`waker` wakes the thread that serves or calls the helper; `main_waker` the main thread, if it serves."""
        self._kernel = kernel
        self._listener = identity.listener
        self._pipes = identity.outputs
        self._runner = None if identity.runner is None else identity.runner.fileno()
        self._waker, self._main_waker = waker, main_waker
        self._peers: dict[int, Peer] = {}
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._repeat_at: float | None = None
        self._rest_until = self._deaf_until = 0.0
        self._alarm = Alarm(REST)
        self._serving = threading.Lock()  # held by the thread that reads
        self._wanted = False  # by the main thread
        self._eager = False
        self._window_until, self._reads_left = 0.0, 0
        self._orphans = Orphans()
        self._looked_at = 0.0  # for orphans
        self._listener.setblocking(False)

    def start(self) -> None:
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="kernelbox-io", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; the kernel is then down to the threads that user code started."""
        assert self._thread is not None
        self._stopping = True
        self._waker.wake()
        self._thread.join()
        _wait_for_exit(self._thread.native_id)
        self._thread = None

    @property
    def descriptors(self) -> list[int]:
        """What is open here, beside the descriptors of the identity."""
        return [self._waker.fd, self._main_waker.fd, self._alarm.fd, *self._peers, *self._orphans.pidfds]

    def renew(self) -> None:
        """Begins anew in a copy of the process, which has no clients and no children. Those of the original stay."""
        self._waker.renew()
        self._main_waker.renew()
        self._alarm.renew()
        for peer in self._peers.values():
            peer.closed = True
            peer.sock.close()
        self._peers.clear()
        close(*self._orphans.pidfds)
        self._orphans = Orphans()
        self._repeat_at = None

    def peers(self) -> list[Peer]:
        return list(self._peers.values())

    def close_after_fork(self) -> None:
        """Closes the sockets in a child that a cell forked: only the kernel answers."""
        for peer in self._peers.values():
            peer.closed = True
            peer.sock.close()
        self._listener.close()

    def drain(self, seconds: float) -> None:
        """Gives clients a moment to read what waits for them, before the process ends."""
        deadline = time.monotonic() + seconds
        for peer in self.peers():
            while peer.backlog and not peer.closed and (left := deadline - time.monotonic()) > 0:
                peer.wait_writable(left)
                self._kernel.outbox.resume(peer)

    def cell_begins(self) -> None:
        """Sets the alarm that brings the helper in."""
        self._alarm.set()

    def cell_ends(self) -> None:
        self._alarm.clear()
        self._eager = False

    def read_at_once(self) -> None:
        """Reads the pipes as they fill until the cell ends, because programs may write to both."""
        if self._kernel.outbox.peer is not None:
            self._eager = True
            self._waker.wake()

    def serve_here(self, until: Callable[[], bool], also: int) -> None:
        """Serves in the main thread until the condition holds or the descriptor `also` is readable."""
        self._wanted = True
        if not self._serving.acquire(blocking=False):
            self._waker.wake()  # the helper was called in by the last cell
            self._serving.acquire()
        self._wanted = False
        try:
            while not until():
                if self._serve_once(also):
                    return
        finally:
            self._serving.release()

    def look_for_orphans(self) -> None:
        """Makes the next thread that serves look for orphans."""
        self._looked_at = 0.0

    @property
    def is_helper(self) -> bool:
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def call_helper(self) -> None:
        """Brings the helper in at once, for as long as the main thread does not serve."""
        self._waker.wake()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wait_for_call()
                with self._serving:
                    while not self._stopping and not self._wanted:  # type: ignore[redundant-expr]  # other threads
                        self._serve_helping()
        except OSError as exc:
            self._kernel.end.die(blame_cell(exc) or f"a cell closed the kernel's own descriptors ({exc})")
        except BaseException as exc:  # noqa: BLE001  # without this thread no client could reach the kernel
            traceback.print_exc(file=sys.__stderr__)
            self._kernel.end.die(f"its I/O thread failed: {exc!r}")

    def _serve_helping(self) -> None:
        try:
            self._serve_once()
        except MemoryError:  # a cell has taken all; the cell gets this error too
            spend_reserve()
            time.sleep(REST)

    def _wait_for_call(self) -> None:
        poller = select.poll()
        poller.register(self._waker.fd, select.POLLIN)
        poller.register(self._alarm.fd, select.POLLIN)
        poller.poll()
        self._waker.clear()
        self._alarm.clear()

    def _serve_once(self, also: int | None = None) -> bool:
        """Waits for something to happen and handles it. True if the descriptor `also` became readable."""
        outbox, now = self._kernel.outbox, time.monotonic()
        resting = now < self._rest_until
        if now - self._looked_at >= (CHECK if outbox.peer is None else _LOOK):
            self._looked_at = now
            self._orphans.look(now)
        congested = outbox.congested
        events = self._poller(also, resting, congested).poll(self._timeout_ms(now, congested))
        if not events:
            self._kernel.end.leave_if_abandoned()
        called = False
        for fd, event in events:
            if fd == also:
                called = True
            else:
                self._see_to(fd, event)
        if not resting and outbox.has_begun_lines:
            outbox.pump()
        self._do_what_is_due()
        return called

    def _poller(self, also: int | None, resting: bool, congested: bool) -> select.poll:
        """Returns a poller for everything that can be served now."""
        poller = select.poll()
        poller.register(self._waker.fd, select.POLLIN)
        if time.monotonic() >= self._deaf_until:
            poller.register(self._listener, select.POLLIN)
        if self._runner is not None:
            poller.register(self._runner, 0)  # it sends nothing; poll(2) always reports its end
        if also is not None:
            poller.register(also, select.POLLIN)
            poller.register(self._main_waker.fd, select.POLLIN)
        if not resting and not congested:
            for pipe in self._pipes:
                poller.register(pipe, select.POLLIN)
        for pidfd in self._orphans.pidfds:
            poller.register(pidfd, select.POLLIN)
        for fd, peer in self._peers.items():
            waits_to_write = peer.backlog and not resting
            poller.register(fd, select.POLLIN | (select.POLLOUT if waits_to_write else 0))
        return poller

    def _see_to(self, fd: int, event: int) -> None:
        if fd == self._waker.fd:
            self._waker.clear()
        elif fd == self._main_waker.fd:
            self._main_waker.clear()
        elif fd == self._listener.fileno():
            if event & select.POLLNVAL:
                self._kernel.end.die("a cell closed the kernel's own descriptors")
            self._accept()
        elif fd == self._runner:
            self._kernel.end.die(ENDED)
        elif fd in self._pipes:
            self._rest(0.0 if self._kernel.outbox.pump() or self._may_go_on() else REST)
        elif fd in self._orphans.pidfds:
            self._orphans.tell(fd, time.monotonic())
        else:
            self._serve(self._peers[fd], event)

    def _do_what_is_due(self) -> None:
        if self._orphans.ended:
            self._orphans.reap(time.monotonic())
        if self._repeat_at is not None and time.monotonic() >= self._repeat_at:
            self._schedule_repeat(self._kernel.interrupts.repeat())
        if (abandoned := self._kernel.abandoned) is not None and time.monotonic() >= abandoned.due:
            self._schedule_repeat(self._kernel.climb())

    def _may_go_on(self) -> bool:
        """Tells whether the pipes may be read again at once. That is allowed a number of times within each rest."""
        if not self._eager:
            return False
        now = time.monotonic()
        if now >= self._window_until:
            self._window_until, self._reads_left = now + REST, _EAGER_READS
        self._reads_left -= 1
        return self._reads_left > 0

    def _rest(self, seconds: float) -> None:
        """Leaves the pipes alone for a moment, so that small texts travel together and short cells run undisturbed."""
        self._rest_until = time.monotonic() + seconds

    def _timeout_ms(self, now: float, congested: bool) -> float:
        abandoned, outbox = self._kernel.abandoned, self._kernel.outbox
        times = [self._rest_until, self._repeat_at, self._deaf_until, *self._orphans.ended.values()]
        if abandoned is not None:
            times.append(abandoned.due)
        waits = [at - now for at in times if at is not None and at > now]
        if outbox.peer is not None or congested:
            waits.append(TICK)
        elif outbox.watchers:
            waits.append(_WATCHED_TICK)
        if self._repeat_at is not None and self._repeat_at <= now:
            return 0.0
        # Rounded up: poll(2) counts whole milliseconds, and waking too early would be a busy loop.
        return math.ceil(min(waits, default=CHECK) * 1000)

    def _accept(self) -> None:
        try:
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # `accept` makes what `socket.socket` is then
            sock = Socket(fileno=fd)
        except BlockingIOError:
            return  # it has gone away again
        except OSError:
            self._deaf_until = time.monotonic() + _DEAFNESS
            return
        if is_same_user(sock):
            self._peers[sock.fileno()] = Peer(sock)
        else:
            sock.close()

    def _serve(self, peer: Peer, event: int) -> None:
        if event & select.POLLOUT:
            self._kernel.outbox.resume(peer)
        if not event & ~select.POLLOUT:
            return
        try:
            messages = None if peer.closed else peer.receive()
        except ProtocolError:
            messages = None
        if messages is None:
            if peer.broken_by_cell:
                self._kernel.end.die("a cell put a descriptor of its own in the place of the kernel's")
            self._drop(peer)
            return
        for message in messages:
            wait = self._kernel.take(peer, message)
            if wait is not None:
                self._schedule_repeat(wait)

    def _drop(self, peer: Peer) -> None:
        del self._peers[peer.sock.fileno()]
        with self._kernel.outbox.lock:  # the main thread may be sending to it
            peer.abandon()
            peer.sock.close()
        wait = self._kernel.lose(peer)
        if wait is not None:
            self._schedule_repeat(wait)

    def _schedule_repeat(self, wait: float | None) -> None:
        self._repeat_at = None if wait is None else time.monotonic() + wait


def blame_cell(exc: BaseException) -> str:
    """Says what a cell has done to make the kernel's own system calls fail; "" if no cell did."""
    match exc:
        case OSError(errno=errno.EBADF):
            return f"a cell closed the kernel's own descriptors ({exc})"
        case OSError(errno=errno.EINVAL) if os.sysconf("SC_OPEN_MAX") < _FEW_FILES:  # so says poll(2)
            return "a cell lowered the number of open files (RLIMIT_NOFILE) below what the kernel needs"
    return ""


def _wait_for_exit(thread_id: int | None) -> None:
    """Waits until the system's thread is gone too: `join` returns when Python's part of it has ended."""
    deadline = time.monotonic() + _EXIT_PATIENCE
    while os.path.exists(f"/proc/self/task/{thread_id}") and time.monotonic() < deadline:
        time.sleep(0.0001)
