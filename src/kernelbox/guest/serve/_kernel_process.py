"""The kernel: takes requests one at a time and runs them on the main thread.

Between cells it waits for the next request, in the event loop if tasks that a cell started are still alive there.
"""

from __future__ import annotations

import os as user_os
import posix as user_posix
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbox.guest._interrupts import Interrupts
from kernelbox.guest._memory_reserve import fill_reserve, spend_reserve
from kernelbox.guest._process_tree import children
from kernelbox.guest._signal_handlers import ForkSignals, Own, give_up_own
from kernelbox.guest._stdlib import asyncio, contextlib, os, signal, threading, time
from kernelbox.guest.output._cell_logger import CellLogger
from kernelbox.guest.output._origins import ORIGIN, Origin
from kernelbox.guest.output._outbox import Outbox
from kernelbox.guest.output._peers import Peer
from kernelbox.guest.output._text_streams import OutStream, write_c_stdout_at_once
from kernelbox.guest.programs import _runner_link
from kernelbox.guest.programs._bash import Bash
from kernelbox.guest.programs._orphans import expect_runner, has_children, watch_starts
from kernelbox.guest.programs._runner_link import RunnerBash
from kernelbox.guest.serve import _queries
from kernelbox.guest.serve._asks import PendingAsks
from kernelbox.guest.serve._copying import Copies, Parts
from kernelbox.guest.serve._event_loop import Loop
from kernelbox.guest.serve._functions_of_host import FunctionsOfHost
from kernelbox.guest.serve._hooks_and_modules import remember_modules, restore_what_ipython_needs, wrap_hooks
from kernelbox.guest.serve._identity import Identity
from kernelbox.guest.serve._io import IO, Waker, blame_cell
from kernelbox.guest.serve._process_end import ProcessEnd
from kernelbox.guest.serve._request_queue import RequestQueue
from kernelbox.guest.serve._transfers import Transfers
from kernelbox.guest.shell import _comm
from kernelbox.guest.shell._cells import Cells
from kernelbox.guest.shell._keyboard import keyboard
from kernelbox.guest.shell._shell import ZMQInteractiveShell
from kernelbox.guest.shell._traceback import format_value
from kernelbox.guest.walls import _guard_hooks
from kernelbox.wire import _kernel_state as _state
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import ProtocolError
from kernelbox.wire._json import type_name
from kernelbox.wire._messages import Answer, Copy, Done, Execute, Interrupt, Message, Payload, Query, Reply, Watch
from kernelbox.wire._output_limit import bound
from kernelbox.wire._timeout_ladder import GRACE, LAST_GRACE

keep_builtins(globals())
remember_modules()

# Failures of our own code in a row after which a kernel gives up.
_FAILURES = 5

_UNGUARDED = (
    "this kernel was opened without require_shell_escape, so nothing keeps its cells from starting programs; the cell "
    "was not run: use another kernel"
)

_GUARDED = "the kernel is guarded (require_shell_escape), and its runner cannot be copied; use a kernel without it"


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A running cell whose client has gone away, and when to take the next step to stop it."""

    execution_id: str
    due: float
    harder: bool = False


class KernelProcess:
    """One kernel process: a shell, its output, its clients and the order in which they are served."""

    def __init__(self, shell: ZMQInteractiveShell, identity: Identity, idle_timeout: float) -> None:
        self.shell = shell
        self._identity = identity
        waker, main_waker = Waker(), Waker()
        self.interrupts = Interrupts(identity.memory, main_waker.wake)
        self.loop = self.interrupts.loop = Loop(self.interrupts.note_background)  # not by a module's policy
        asyncio.set_event_loop(self.loop)
        self.outbox = Outbox(identity.memory, identity.outputs, self.interrupts, CellLogger(identity.cells))
        self.asks = keyboard.asks = PendingAsks(self.outbox, waker.wake, guarded=identity.runner is not None)
        self._guarded = identity.runner is not None
        self._always_there: set[int] = set()
        self.bash = self._make_bash(identity)
        self.comm_manager = _comm.install(self.outbox)
        self.transfers = Transfers()
        self.functions_of_host = FunctionsOfHost(self.shell, self.asks)
        self._io = IO(self, identity, waker, main_waker)
        self.end = ProcessEnd(identity, self.outbox, self.bash, self._io)
        self._queue = RequestQueue(self.outbox)
        self.abandoned: Abandoned | None = None  # when it is due, `climb` wants to be called
        self._asking: Peer | None = None  # whose query is being answered
        self._idle_timeout = idle_timeout
        self._forks = ForkSignals()
        self._main = threading.get_ident()
        self._cells = Cells(self.shell, self.bash, self.comm_manager, self.loop, self.interrupts)
        self._parent = ""  # of the execution that runs or was the last, as its front end knows it
        self._copies = None if isinstance(self.bash, RunnerBash) else Copies(self._parts(self.bash))

    def __repr__(self) -> str:
        state = "idle" if self._queue.idle else "busy"
        return f"<KernelProcess pid={self._identity.pid} {state} queued={len(self._queue)}>"

    def _make_bash(self, identity: Identity) -> Bash | RunnerBash:
        if identity.runner is None:
            return Bash()
        self.interrupts.stop_others = _runner_link.stop_programs
        self._always_there = {identity.runner_pid}
        self.interrupts.older = self._always_there
        expect_runner(identity.runner_pid)
        return RunnerBash(_runner_link.connect(identity.runner))

    def _parts(self, bash: Bash) -> Parts:
        threads = (self._io, self._queue, self.outbox, self.loop, self.interrupts)
        return Parts(self._identity, *threads, bash, self._cells, self.shell)

    def serve(self) -> None:
        """Runs requests until the process ends."""
        _guard_hooks.prepare(self._identity.directory)
        if self._guarded:
            _guard_hooks.raise_guards()
        watch_starts(self._io.read_at_once)
        self._wire_shell()
        self.interrupts.install()
        Own(signal.SIGTERM, self.end.on_terminate, int(signal.SIG_DFL))
        block, unblock = self._forks.block, self._forks.unblock
        os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=self._after_fork)
        self._io.start()
        wrap_hooks(self._runs_own_code)
        self.outbox.ready()
        fill_reserve()
        failures = 0
        while True:
            try:
                self._serve_one()
                failures = 0
            except BaseException as exc:  # noqa: BLE001  # what cells leave behind must not end their kernel
                failures += 1
                self._survive(exc, failures)

    def _runs_own_code(self) -> bool:
        """Tells whether the calling thread runs the kernel's own code, and not a cell's."""
        return self.interrupts.in_own_code if threading.get_ident() == self._main else self._io.is_helper

    def _serve_one(self) -> None:
        peer, request = self._next()
        if peer.closed:
            return  # its client has gone, and it has not begun
        if isinstance(request, Execute):
            self._execute(peer, request)
        elif isinstance(request, Copy):
            self._copy(peer, request)
        else:
            self._answer(peer, request)
        fill_reserve()

    def _survive(self, exc: BaseException, failures: int) -> None:
        """Goes on after a failure of the kernel's own code, if possible, and reports it to the running execution."""
        spend_reserve()
        reason = f"the kernel's own code failed ({type_name(exc)}: {bound(format_value(exc), 200)})"
        if blame := blame_cell(exc):
            self.end.die(blame)
        if failures > _FAILURES:
            self.end.die(reason)
        try:
            self.interrupts.protect()
            self._io.cell_ends()
            self.interrupts.end()
            if self.outbox.peer is not None:
                name = "MemoryError" if isinstance(exc, MemoryError) else "RuntimeError"
                self.outbox.end(Done(self.outbox.execution_id, "error", None, name, reason, [f"{name}: {reason}"]))
                self.asks.end()
        except BaseException:  # noqa: BLE001  # it cannot even be told
            self.end.die(reason)

    # -- called by the I/O thread ----------------------------------------------------------------------------

    def take(self, peer: Peer, message: Message) -> float | None:
        """Acts on a message. Returns when an interrupt wants to be repeated."""
        if peer.refusal and not isinstance(message, Interrupt):
            self._turn_away(peer, message)
            return None
        if isinstance(message, Execute) and not peer.is_known_by(message.key):
            self.end.die("a cell sent a request in the name of a client")
        match message:
            case Execute() | Query() | Copy():
                self._queue.add(peer, message)
                if self._queue.idle and threading.get_ident() != self._main:  # who is not in the loop then, but here
                    self.loop.call_soon_threadsafe(self._stop_idling)
            case Interrupt():
                if message.tell:
                    running = self.interrupts.is_running(message.id)
                    self.outbox.reply(peer, Reply(message.id, {"running": running}))
                by_main = threading.get_ident() == self._main
                if (waiting := self._queue.withdraw(message.id, by_main=by_main)) is False:
                    return None
                if message.harder:
                    self.interrupts.stop_programs(message.id, self.bash.pid)
                if waiting:
                    return self.interrupts.request_background()
                return None if self.interrupts.aimed else self.interrupts.request(message.id)
            case Answer():
                self.asks.answer(peer, message)
            case Watch():
                self.outbox.watch(peer)
        return None

    def _turn_away(self, peer: Peer, message: Message) -> None:
        """Refuses a request from a cell of this kernel: it could lift its own restrictions that way."""
        name, reason = "PermissionError", peer.refusal
        if isinstance(message, Execute):
            self.outbox.reply(peer, Done(message.id, "error", None, name, reason, [f"{name}: {reason}"]))
        elif isinstance(message, Query | Copy):
            self.outbox.reply(peer, Reply(message.id, {"status": "error", "ename": name, "evalue": reason}))

    def lose(self, peer: Peer) -> float | None:
        """Drops a client that has gone away, and stops its cell, because no client is left to stop it."""
        self.outbox.unwatch(peer)
        self.asks.abandon(peer)
        if peer is self._asking:
            return self.interrupts.request("")
        if peer is not self.outbox.peer:
            return None
        self.abandoned = Abandoned(self.outbox.execution_id, time.monotonic() + GRACE)
        return self.interrupts.request(self.outbox.execution_id)

    def climb(self) -> float | None:
        """Takes the next step to stop a cell whose client has gone, as after a timeout. Returns as `take` does."""
        abandoned, self.abandoned = self.abandoned, None
        if abandoned is None or not self.interrupts.is_running(abandoned.execution_id):
            return None
        if abandoned.harder:
            self.end.die("killed, because a cell whose client had gone away did not stop when interrupted")
        self.abandoned = Abandoned(abandoned.execution_id, time.monotonic() + LAST_GRACE, harder=True)
        self.interrupts.stop_programs(abandoned.execution_id, self.bash.pid)
        return self.interrupts.request(abandoned.execution_id)

    # -- the main thread -------------------------------------------------------------------------------------

    def _next(self) -> tuple[Peer, Execute | Query | Copy]:
        while True:
            self._queue.idle = True
            if self.interrupts.waiting_handlers:
                self.interrupts.call_waiting_handlers()
            if self._queue.entries and (taken := self._queue.take()) is not None:
                return taken
            if not self._idle_timeout and self.loop.is_quiet:
                self._io.serve_here(until=self._has_work, also=self.loop.wakeup)
            else:
                self._run_loop()

    def _has_work(self) -> bool:
        return bool(self._queue.entries or self.interrupts.waiting_handlers)

    def _run_loop(self) -> None:
        """Runs what cells have left in the event loop until a request comes."""
        self._io.call_helper()
        cull = self.loop.call_later(self._idle_timeout, self._cull) if self._idle_timeout else None
        try:
            with self.interrupts.in_background():
                self.loop.run_forever()
        except BaseException as exc:  # noqa: BLE001  # tasks of cells, and a loop that uses what they have patched
            self._cells.leave_if_forked(exc)
            self.outbox.streams[1].write(f"A task in the background raised {type_name(exc)}; it has ended.\n")
        finally:
            if cull is not None:
                cull.cancel()

    def _stop_idling(self) -> None:
        if self._queue.idle:
            self.loop.stop()

    def _cull(self) -> None:
        if not self._queue.entries:
            self.end.leave(f"ended after {self._idle_timeout:g} s without work, as KERNELBOX_CULL_IDLE asks")

    def leave_if_unused(self, seconds: float) -> dict[str, bool]:
        """Ends the process if no cell has run for so long and none is waiting; otherwise answers that it stays."""
        state = _state.parse(self._identity.memory[: _state.SIZE])
        if not self._queue.has_cells() and state is not None and time.time() - state.last_used > seconds:
            self.end.leave(f"ended after {seconds:g} s without work, as a client requested")
        return {"left": False}

    def _execute(self, peer: Peer, request: Execute) -> None:
        if self._guarded and not _runner_link.is_there():
            # The thread that serves notices its end, but the next cell may have come before.
            self.end.die(_runner_link.ENDED)
        bash = request.language == "bash"
        self._parent = request.parent or request.id
        self.interrupts.begin(request.id)
        self.asks.begin(request)
        if request.functions:
            self.functions_of_host.install(request.functions)
        self.outbox.begin(request, peer, self.shell.execution_count)
        self._io.cell_begins()
        restore_what_ipython_needs(self.outbox.streams)
        if bash:
            self._io.read_at_once()
        done = self._refuse(request) if request.shell_escape_only and not self._guarded else self._cells.run(request)
        self._io.cell_ends()
        self.interrupts.end()
        done.execution_count = None if request.language != "python" else self.shell.execution_count - 1
        self._identity.restore_descriptors()
        if request.payloads:
            self._send_payloads(peer, request.id)
        if self.shell.exit_requested:
            self.outbox.relieve()
            self.end.leave("the cell called exit()")
        self.outbox.end(done)
        if self.asks.open:
            self.asks.end()
        self.interrupts.older = self._always_there
        if has_children():
            self.interrupts.older = set(children()) - {self.bash.pid}
            self._io.look_for_orphans()
        if peer.broken_by_cell:
            self.end.die("a cell closed the kernel's own descriptors")

    def _send_payloads(self, peer: Peer, execution_id: str) -> None:
        for content in self.shell.take_payloads():
            try:
                self.outbox.reply(peer, Payload(execution_id, content))
            except (TypeError, ValueError, ProtocolError) as exc:  # a cell has made it
                self.outbox.streams[1].write(f"A payload was not sent: {bound(format_value(exc), 200)}\n")

    def _refuse(self, request: Execute) -> Done:
        """Returns the error for a cell that must not run here, because the kernel is not guarded."""
        return Done(request.id, "error", None, "RuntimeError", _UNGUARDED, [f"RuntimeError: {_UNGUARDED}"])

    def _answer(self, peer: Peer, query: Query) -> None:
        self.interrupts.begin_query(query.id)
        self._asking = peer
        restore_what_ipython_needs(self.outbox.streams)
        self._io.cell_begins()
        try:
            self.interrupts.expose()
            content = _queries.answer(self, query)
        finally:
            self.interrupts.protect()
            self._asking = None
            self._io.cell_ends()
            self.interrupts.end()
        payload = content.pop("payload", b"")
        try:
            self.outbox.reply(peer, Reply(query.id, content, payload))
        except (TypeError, ValueError, ProtocolError) as exc:  # what user code made of it is not JSON, or too long
            content = {"status": "error", "ename": type_name(exc), "evalue": bound(format_value(exc), 1000)}
            self.outbox.reply(peer, Reply(query.id, content))

    def _copy(self, peer: Peer, request: Copy) -> None:
        if self._copies is None:
            self.outbox.reply(peer, Reply(request.id, {"status": "refused", "reasons": [_GUARDED]}))
            return
        with self.quiesced():
            answer = self._copies.make(request)
            if answer is not None:  # before the threads start again: the host waits
                self.outbox.reply(peer, Reply(request.id, answer))

    @contextlib.contextmanager
    def quiesced(self) -> Any:
        """Stops the kernel's own threads but the main thread, while the context lasts."""
        self._io.stop()
        try:
            yield
        finally:
            self._io.start()

    # -- around the user's code ------------------------------------------------------------------------------

    def _wire_shell(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # it may have been deleted since
            self.shell.user_ns["_dh"][:] = [Path.cwd()]
        self.shell.kernel = self
        self.shell.display_pub.outbox = self.shell.displayhook.outbox = self.outbox
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # as long as the process
        sys.stdout, sys.stderr = OutStream(self.outbox, 0), OutStream(self.outbox, 1)
        user_os._exit = user_posix._exit = self.end.exit_at_once
        write_c_stdout_at_once()
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc, assignment]  # what libraries restore

    def get_parent(self, channel: str | None = None) -> dict[str, Any]:
        """Returns what ipywidgets' Output uses to tell cells apart."""
        origin = ORIGIN.get() or Origin(self.outbox.execution_id, self._parent)
        return {"header": {"msg_id": origin.parent, "execution_id": origin.execution_id}}

    def _after_fork(self) -> None:
        if self._copies is not None and self._copies.under_way:
            self._forks.unblock()
            return
        self._identity.close_after_fork()
        self.outbox.after_fork()
        self._io.close_after_fork()
        self.interrupts.after_fork()
        give_up_own()
        self._forks.unblock()
