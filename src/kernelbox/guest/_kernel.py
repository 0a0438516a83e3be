"""The kernel: takes requests one at a time and runs them on the main thread, inside an event loop that never stops.

Between cells the loop runs alone, so tasks that a cell started go on. The I/O thread queues requests and wakes it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from mmap import mmap
from pathlib import Path
from socket import socket
from typing import Any

from kernelbox.guest import _comm, _queries
from kernelbox.guest._asks import Asks
from kernelbox.guest._bash import Bash
from kernelbox.guest._changes import Changes
from kernelbox.guest._descendants import kill_descendants
from kernelbox.guest._interrupts import Interrupts
from kernelbox.guest._io import IO, Waker
from kernelbox.guest._outbox import Outbox
from kernelbox.guest._peer import Peer
from kernelbox.guest._shell import ZMQInteractiveShell, pass_for_ipykernel
from kernelbox.guest._streams import OutStream
from kernelbox.guest._traceback import format_value
from kernelbox.wire import _state
from kernelbox.wire._bounded import bound
from kernelbox.wire._framing import ProtocolError
from kernelbox.wire._messages import (
    Answer,
    Done,
    Execute,
    Farewell,
    Interrupt,
    Message,
    Query,
    Reply,
    Started,
)

# How long a kernel that leaves waits for clients that have not read all of its words.
_LAST_PATIENCE = 0.3

# Where the reason for an end on purpose is written down; host/_death.py has the same.
INTENT = "ending.json"


class BashError(Exception):
    """A bash cell ended with a status other than 0."""


class Kernel:
    """One kernel process: a shell, its output, its clients and the order in which they are served."""

    def __init__(
        self,
        shell: ZMQInteractiveShell,
        listener: socket,
        memory: mmap,
        pipes: tuple[int, int],
        idle_timeout: float,
    ) -> None:
        self.shell = shell
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.interrupts = Interrupts(self.loop, memory)
        waker = Waker()
        self.outbox = Outbox(memory, pipes, self.interrupts)
        self.asks = Asks(self.outbox)
        self.bash = Bash()
        self.comm_manager = _comm.install(self.outbox)
        self._io = IO(self, listener, pipes, waker)
        self._queue: deque[tuple[Peer, Execute | Query]] = deque()
        self._queue_lock = threading.Lock()
        self._idle = False
        self._idle_timeout = idle_timeout
        self._memory = memory
        self.directory = ""
        self._loop_wakeup: int = self.loop._ssock.fileno()  # type: ignore[attr-defined]  # what other threads wake it by
        self._context = contextvars.copy_context()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<Kernel pid={self._pid} {'idle' if self._idle else 'busy'} queued={len(self._queue)}>"

    def serve(self) -> None:
        """Runs requests until the process ends."""
        self._wire_shell()
        self.interrupts.install()
        signal.signal(signal.SIGTERM, self._on_terminate)
        os.register_at_fork(after_in_child=self._after_fork)
        self._io.start()
        self.outbox.ready()
        try:
            while True:
                peer, request = self._next()
                if peer.closed:
                    continue  # nobody waits for it any more, and it has not begun
                if isinstance(request, Execute):
                    self._execute(peer, request)
                else:
                    self._answer(peer, request)
        except OSError as exc:
            traceback.print_exc(file=sys.__stderr__)
            self.die(f"a cell closed the kernel's own descriptors ({exc})")

    # -- called by the I/O thread ----------------------------------------------------------------------------

    def take(self, peer: Peer, message: Message) -> float | None:
        """Acts on a message. Returns when an interrupt wants to be repeated."""
        match message:
            case Execute() | Query():
                with self._queue_lock:
                    self._queue.append((peer, message))
                if self._idle:
                    self.loop.call_soon_threadsafe(self._stop_idling)
            case Interrupt():
                if self._withdraw(message.id):
                    return None
                if message.harder:
                    kill_descendants()
                return None if self.interrupts.aimed else self.interrupts.request(message.id)
            case Answer():
                self.asks.answer(peer, message)
        return None

    def lose(self, peer: Peer) -> float | None:
        """Lets go of a client that has gone away, and of its cell: nobody is left who could end it."""
        self.asks.abandon(peer)
        return self.interrupts.request(self.outbox.execution_id) if peer is self.outbox.peer else None

    def die(self, reason: str) -> None:
        """Ends the process at once because it cannot be of use any more."""
        try:
            self._announce(reason)
            for peer in self._io.peers():
                self.outbox.reply(peer, Farewell(reason))
        finally:
            os._exit(1)

    def _withdraw(self, execution_id: str) -> bool:
        with self._queue_lock:
            for entry in self._queue:
                if entry[1].id == execution_id:
                    self._queue.remove(entry)
                    self.outbox.reply(entry[0], Done(execution_id, "aborted"))
                    return True
        return False

    # -- the main thread -------------------------------------------------------------------------------------

    def _next(self) -> tuple[Peer, Execute | Query]:
        while True:
            self._idle = True
            with self._queue_lock:
                if self._queue:
                    self._idle = False
                    return self._queue.popleft()
            if self._loop_is_quiet():
                self._io.serve_here(until=lambda: bool(self._queue), also=self._loop_wakeup)
            else:
                self._run_loop()

    def _loop_is_quiet(self) -> bool:
        """Tells whether no cell has left anything to do in the event loop."""
        loop: Any = self.loop
        if loop._ready or loop._scheduled or len(loop._selector.get_map()) > 1:
            return False
        return not self._idle_timeout and not asyncio.all_tasks(loop)

    def _run_loop(self) -> None:
        """Runs what cells have left in the event loop until a request comes."""
        self._io.call_helper()
        cull = self.loop.call_later(self._idle_timeout, self._cull) if self._idle_timeout else None
        try:
            self.loop.run_forever()
        except (KeyboardInterrupt, SystemExit) as exc:
            self._leave_if_forked(exc)
            print(f"A task in the background raised {type(exc).__name__}; it has ended.", file=sys.stderr)
        finally:
            if cull is not None:
                cull.cancel()

    def _stop_idling(self) -> None:
        if self._idle:
            self.loop.stop()

    def _cull(self) -> None:
        with self._queue_lock:
            idle = not self._queue
        if idle:
            self._leave(f"ended after {self._idle_timeout:g} s without work, as KERNELBOX_CULL_IDLE asks")

    def leave_if_unused(self, seconds: float) -> dict[str, bool]:
        """Ends the process if no cell has run for so long and none is waiting; otherwise says that it stays."""
        state = _state.parse(self._memory[: _state.HEADER.size])
        with self._queue_lock:
            idle = not any(isinstance(request, Execute) for _, request in self._queue)
        if idle and state is not None and time.time() - state.last_used > seconds:
            self._leave(f"ended after {seconds:g} s without work, as somebody asked for")
        return {"left": False}

    def _execute(self, peer: Peer, request: Execute) -> None:
        bash = request.language == "bash"
        count = self.shell.execution_count
        self.interrupts.begin(request.id)
        self.outbox.begin(request.id, peer, Started(request.id, count))
        self._io.cell_begins()
        with self.asks.guarding(request):
            cell = self._run_bash(request) if bash else self._run_python(request)
            done = self._run_to_end(request, cell) if self._may_wait(request) else self._run_at_once(request, cell)
        self._io.cell_ends()
        self.interrupts.end()
        done.execution_count = None if bash else self.shell.execution_count - 1
        self._restore_descriptors()
        if self.shell.exit_requested:
            self.outbox.relieve()
            self._leave("the cell called exit()")
        self.outbox.end(done)
        if peer.robbed:
            self.die("a cell closed the kernel's own descriptors")

    def _may_wait(self, request: Execute) -> bool:
        """Tells whether a cell can give way to the event loop: whatever does has one of these words in it."""
        if request.language == "bash":
            return False
        return "await" in request.code or "async" in request.code or self.shell.has_own_transformers()

    def _run_at_once(self, request: Execute, cell: Any) -> Done:
        """Runs the coroutine of a cell that never waits, without making a task of it.

        As in a notebook the loop counts as running, so that the cell can start tasks; they run when it has ended.
        """
        loop: Any = self.loop
        asyncio._set_running_loop(loop)
        loop._thread_id = threading.get_ident()
        try:
            self._context.run(cell.send, None)
        except StopIteration as stop:
            done: Done = stop.value
            return done
        except BaseException as exc:  # noqa: BLE001  # an interrupt outside the user's own frames
            self.interrupts.protect()
            self._leave_if_forked(exc)
            return self._report(request, exc)
        finally:
            asyncio._set_running_loop(None)
            loop._thread_id = None
        raise AssertionError("a cell without await has waited")

    def _run_to_end(self, request: Execute, cell: Any) -> Done:
        """Runs the coroutine of a cell, come what may, and returns what to say of it."""
        task = self.loop.create_task(cell, context=self._context)
        self.interrupts.attach(task)
        while not task.done():
            try:
                self.loop.run_until_complete(task)
            except KeyboardInterrupt:
                # It struck a task in the background while the cell waited; it was meant for the cell.
                self.interrupts.protect()
                if not task.done():
                    task.cancel()
            except (RuntimeError, asyncio.CancelledError, SystemExit):
                continue  # the cell stopped the loop, or cancelled every task
        self._leave_if_forked(None if task.cancelled() else task.exception())
        if task.cancelled():
            value = "the cell cancelled its own task"
            return Done(request.id, "error", None, "CancelledError", value, [f"CancelledError: {value}"])
        if (exc := task.exception()) is not None:
            self.interrupts.protect()
            return self._report(request, exc)
        result: Done = task.result()
        return result

    async def _run_python(self, request: Execute) -> Done:
        shell = self.shell
        shell.error = None
        shell.changes = Changes(shell) if request.report_changes else None
        self.shell.display_pub.text_limit = self.shell.displayhook.text_limit = request.text_limit
        try:
            self.interrupts.expose()
            result = await self._run_cell(request)
            error = self._failure(result)
            self._leave_if_forked(error)
            report = None if error is None else shell.describe(self._as_interrupt(error), request.text_limit)
        except BaseException as exc:  # noqa: BLE001  # an interrupt outside the user's own frames
            self.interrupts.protect()
            return self._report(request, exc)
        finally:
            self.interrupts.protect()
            shell.error = None
        done = Done(request.id, "ok", interrupted=self.interrupts.seen)
        if report is not None:
            done.status, (done.ename, done.evalue, done.traceback, done.cut) = "error", report
        if shell.changes is not None:
            done.changed = shell.changes.report()
        self._restore_cwd(request)
        return done

    async def _run_cell(self, request: Execute) -> Any:
        shell, result, failure = self.shell, None, None
        try:
            cell = shell.transform_cell(request.code)
        except Exception:  # noqa: BLE001  # IPython shows what its transformers raise
            cell, failure = request.code, sys.exc_info()
        shell.in_cell = True
        try:
            result = await shell.run_cell_async(
                request.code,
                store_history=request.store_history,
                silent=request.silent,
                transformed_cell=cell,
                preprocessing_exc_tuple=failure,
            )
        finally:
            shell.in_cell = False
            shell.events.trigger("post_execute")
            if not request.silent:
                shell.events.trigger("post_run_cell", result)
        return result

    async def _run_bash(self, request: Execute) -> Done:
        try:
            self.interrupts.expose()
            self.shell.approved("shell", request.code)
            status, alive = self.bash.run(request.code)
            if not alive:
                print("[bash exited; the next bash cell starts a new one]", file=sys.stderr)
        except BaseException as exc:  # noqa: BLE001  # reported as the cell's error
            self.interrupts.protect()
            return self._report(request, exc)
        finally:
            self.interrupts.protect()
        if status == 0:
            return Done(request.id, "ok", interrupted=self.interrupts.seen)
        value = f"bash returned exit status {status}"
        return Done(request.id, "error", None, "CalledProcessError", value, [f"CalledProcessError: {value}"])

    def _failure(self, result: Any) -> BaseException | None:
        """Returns what a cell failed with: what the shell showed, or only noted."""
        return result.error_before_exec or result.error_in_exec or self.shell.error

    def _as_interrupt(self, error: BaseException) -> BaseException:
        """A cell that was interrupted in an `await` sees a cancellation; its caller asked for an interrupt."""
        if self.interrupts.seen and isinstance(error, asyncio.CancelledError):
            return KeyboardInterrupt().with_traceback(error.__traceback__)
        return error

    def _report(self, request: Execute, exc: BaseException) -> Done:
        name, value, lines, cut = self.shell.describe(self._as_interrupt(exc), request.text_limit)
        return Done(request.id, "error", None, name, value, lines, self.interrupts.seen, cut)

    def _answer(self, peer: Peer, query: Query) -> None:
        self.interrupts.begin(query.id)
        self._io.cell_begins()
        try:
            self.interrupts.expose()
            content = _queries.answer(self, query)
        except BaseException as exc:  # noqa: BLE001  # user code runs here too: properties, reprs
            content = {"status": "error", "ename": type(exc).__name__, "evalue": format_value(exc)}
        finally:
            self.interrupts.protect()
            self._io.cell_ends()
            self.interrupts.end()
        try:
            self.outbox.reply(peer, Reply(query.id, content))
        except (TypeError, ValueError, ProtocolError) as exc:  # what user code made of it is not JSON, or too long
            content = {"status": "error", "ename": type(exc).__name__, "evalue": bound(format_value(exc), 1000)}
            self.outbox.reply(peer, Reply(query.id, content))

    @contextlib.contextmanager
    def quiesced(self) -> Any:
        """Brings the kernel down to its main thread, for as long as the context lasts."""
        self._io.stop()
        try:
            yield
        finally:
            self._io.start()

    # -- around the user's code ------------------------------------------------------------------------------

    def _wire_shell(self) -> None:
        pass_for_ipykernel()
        self.shell.user_ns["_dh"][:] = [Path.cwd()]
        self.shell.kernel = self
        self.shell.display_pub.outbox = self.shell.displayhook.outbox = self.outbox
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # as long as the process
        sys.stdout, sys.stderr = OutStream(self.outbox, 0), OutStream(self.outbox, 1)
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc, assignment]  # what libraries restore

    def get_parent(self) -> dict[str, Any]:
        """Returns what ipywidgets' Output uses to tell cells apart."""
        return {"header": {"msg_id": self.outbox.execution_id}}

    def _restore_descriptors(self) -> None:
        """Reopens descriptors 0 to 2 if the cell closed them, before something else takes their numbers."""
        for fd in range(3):
            try:
                os.fstat(fd)
            except OSError:
                source = os.open(os.devnull, os.O_RDONLY) if fd == 0 else os.dup(self._spare[fd - 1])
                if source == fd:
                    os.set_inheritable(fd, True)
                else:
                    os.dup2(source, fd)
                    os.close(source)

    def keep_spares(self, spares: tuple[int, int]) -> None:
        self._spare = spares

    def _restore_cwd(self, request: Execute) -> None:
        if not request.restore_cwd:
            return
        try:
            moved = os.getcwd() != request.restore_cwd
        except FileNotFoundError:
            moved = True
        if moved:
            os.chdir(request.restore_cwd)
            print(f"\n[kernelbox] cwd reset to {request.restore_cwd}")

    def _leave_if_forked(self, exc: BaseException | None) -> None:
        """Ends a child that the cell forked and that ran on to the end of the cell, as a script would."""
        if os.getpid() == self._pid:
            return
        if isinstance(exc, SystemExit):
            os._exit(exc.code if isinstance(exc.code, int) else int(exc.code is not None))
        if exc is not None:
            lines = self.shell.describe(exc, 0)[2]
            print("\n".join(lines), file=sys.stderr, flush=True)
        os._exit(exc is not None)

    def _after_fork(self) -> None:
        self.outbox.after_fork()
        self._io.close_after_fork()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_terminate(self, signum: int, frame: object) -> None:
        self._leave(self._read_intent() or "killed by SIGTERM")

    def _leave(self, reason: str) -> None:
        """Ends the process in good order: clients are told, exit functions run."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            self._announce(reason)
            for peer in self._io.peers():
                self.outbox.reply(peer, Farewell(reason))
            self.bash.close()
            atexit._run_exitfuncs()
            self._io.drain(_LAST_PATIENCE)
            kill_descendants()  # our keeper, which would do it, may be gone
        finally:
            os._exit(0)

    def _announce(self, reason: str) -> None:
        if not self._read_intent():
            with contextlib.suppress(OSError), open(os.path.join(self.directory, INTENT), "w") as file:
                json.dump({"pid": self._pid, "reason": reason}, file)

    def _read_intent(self) -> str:
        """Returns why somebody is ending this process on purpose, if anybody is."""
        with contextlib.suppress(OSError, ValueError), open(os.path.join(self.directory, INTENT)) as file:
            intent = json.load(file)
            return str(intent["reason"]) if intent.get("pid") == self._pid else ""
        return ""
