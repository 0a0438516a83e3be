"""Interrupts that are aimed at one execution, and never strike in the middle of the kernel's own code.

When to interrupt, and how hard, is decided by the timeout ladder in `wire/_timeout_ladder.py`.

A request names the execution it means. SIGINT goes to the kernel and to what the cell has started and left in the
kernel's process group, as at a terminal; what earlier cells started is spared. It is sent again until the main thread
has seen it, because C code such as `system(3)` swallows it; to a handler of the cell's own it is sent once.

A cell that holds the interpreter (a regular expression that never ends) keeps the I/O thread from taking requests.
For it the host writes the execution into the state file and sends a signal of its own, which C code sees too.

User code that a query runs, a repr or a property, has a limit of time. A timer sends the same signal when it is over.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps
import math
from collections.abc import Callable, Iterator
from mmap import mmap
from types import FrameType

from kernelbox.guest._alarm import SignalAlarm
from kernelbox.guest._process_tree import SINCE_BOOT, begun_since, signal_all
from kernelbox.guest._signal_handlers import (
    Handler,
    Own,
    call_between_cells,
    call_contained,
    set_handler,
    wrap_handlers,
)
from kernelbox.guest._stdlib import asyncio, contextlib, os, signal, sys, threading, time
from kernelbox.wire import _kernel_state as state
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# What the host sends when requests are not answered; no library uses it. host/process/_process.py has the same.
DIRECT = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2

# What interrupts a cell, and the function that unblocks it, without the enum's members: it is called for every cell.
_OURS = (int(signal.SIGINT), int(DIRECT))
_UNBLOCK, _set_mask = int(signal.SIG_UNBLOCK), _signal.pthread_sigmask

# How long to wait before SIGINT is sent once more.
_REPEAT = 0.05

# How long user code that catches even TimeUp is left alone: our own code, which it may strike next, has ended by then.
_AGAIN = 0.2


_holds: contextlib.AbstractContextManager[None] = contextlib.nullcontext()


def hold_by(holds: contextlib.AbstractContextManager[None]) -> None:
    """Sets what `held` returns."""
    global _holds
    _holds = holds


def held() -> contextlib.AbstractContextManager[None]:
    """Holds interrupts back for a few lines that must run as a whole, such as the start of a process."""
    return _holds


class TimeUp(BaseException):
    """Raised in user code that a query runs for too long, or for a client that waits no longer.

    It is not a KeyboardInterrupt, because much code catches that.
    """


class Interrupts:
    """Decides what a SIGINT does: nothing, strike now, or strike when the main thread leaves the kernel's own code.

    `with` it, a stretch of the kernel's own code runs as a whole.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(self, memory: mmap, wake: Callable[[], None]) -> None:
        self._memory = memory
        self._seen = False
        self._main = threading.get_ident()
        self._aiming = threading.Lock()  # held while an execution is struck: no other begins, to be struck instead
        self._running: str | None = None
        self._task: asyncio.Task[object] | None = None
        self._target: str | None = None
        self._depth = 1
        self._deferred = False
        self.older: set[int] = set()  # children that earlier cells left
        # Stops what another process has started for cells, since a time.
        self.stop_others: Callable[[float], object] = lambda since: None
        self.began = 0.0  # the running execution, in seconds since boot, as the start of a process is
        self._background = False  # whether the main thread runs what cells have left in the event loop
        self._background_target = False
        self._wake = wake  # ends the main thread's wait for a request
        self._limit: float | None = None  # when user code must have ended that a query runs; None while a cell runs
        self._unwanted = False  # whether the client of the query waits no longer
        # Handlers of cells, by the signal that came while our own code ran.
        self.waiting_handlers: dict[int, Handler] = {}

    def install(self) -> None:
        hold_by(self)
        # What ends a process at SIGINT would end the kernel at every interrupt.
        self._own = Own(signal.SIGINT, self._on_signal, _signal.default_int_handler, int(signal.SIG_DFL))
        set_handler(DIRECT, self._on_direct)
        self._limit_alarm = SignalAlarm(DIRECT)
        wrap_handlers(self._on_handled)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD})

    def begin(self, execution_id: str) -> None:
        """Opens an execution to interrupts."""
        with self._aiming:
            # Python handles in this call the signal that was meant for the execution before; not on the way in.
            self.began = time.clock_gettime(SINCE_BOOT)
            self._seen = self._deferred = self._background_target = False
            self._target = None
            self._running = execution_id
        self._own.restore()
        _set_mask(_UNBLOCK, _OURS)  # an earlier cell may have left them blocked

    def begin_query(self, query_id: str) -> None:
        """Opens a query to interrupts: TimeUp is then raised, and nothing else."""
        self.begin(query_id)
        self._limit, self._unwanted = math.inf, False

    def allow(self, seconds: float) -> None:
        """Sets the limit for the user code that a query runs next; raises TimeUp if the client waits no longer."""
        self._limit = time.monotonic() + seconds
        self._limit_alarm.set(seconds)
        if self._unwanted:
            raise TimeUp

    @property
    def seen(self) -> bool:
        """Whether the execution was interrupted; also when C code swallowed the signal and nothing ran since."""
        return self._seen or (self._target is not None and self._target == self._running)

    @property
    def aimed(self) -> bool:
        """Whether the host itself sends the running execution a signal."""
        running = self._running
        return running is not None and self._memory[state.TARGET_AT : state.HEADER.size] == state.target(running)

    def attach(self, task: asyncio.Task[object]) -> None:
        """Names the task to cancel when an interrupt finds the cell suspended in an `await`."""
        self._task = task

    def end(self) -> None:
        """Closes the execution: an interrupt that arrives later has no effect."""
        self._running = self._task = None
        self._deferred = False
        if self._limit is not None:
            self._limit_alarm.clear()
            self._limit = None

    def is_running(self, execution_id: str) -> bool:
        """Tells whether this execution runs; an empty id means any."""
        return self._running is not None and execution_id in ("", self._running)

    def request(self, execution_id: str) -> float | None:
        """Interrupts an execution if it runs; called by the I/O thread. Returns when to call `repeat`."""
        with self._aiming:
            if not self.is_running(execution_id):
                return None
            self._target = self._running
            if self._limit is not None:
                self._unwanted, self._limit = True, 0.0
            self.interrupt_programs()
            os.kill(os.getpid(), signal.SIGINT)
            return _REPEAT if self._own.is_set else None

    def interrupt_programs(self) -> None:
        """Sends SIGINT to what `begun_by_cell` returns, as a terminal would."""
        signal_all(self.begun_by_cell(), signal.SIGINT, group=os.getpgrp())

    def stop_programs(self, execution_id: str, spared: int) -> None:
        """Kills what an execution has started, if it runs, but for one process; leaves those of another alone.

        If none runs, what has been started since is interrupted: a task may wait for it, in C code such as `system(3)`.
        """
        with self._aiming:
            if self.is_running(execution_id):
                signal_all((pid for pid in self.begun_by_cell() if pid != spared), signal.SIGKILL)
                self.stop_others(self.began)
            elif self._running is None:
                self.interrupt_programs()

    def begun_by_cell(self) -> list[int]:
        """Returns the processes that the running cell has started, or that were started since the last one ended."""
        return begun_since(self.began, self.older)

    def request_background(self) -> float | None:
        """Interrupts what a task of an earlier cell does on the main thread. Returns when to call `repeat`."""
        self._background_target = True
        return self.repeat()

    def repeat(self) -> float | None:
        """Sends SIGINT again if the main thread has not seen the last one."""
        with self._aiming:
            if not self._background_target and (self._target is None or self._target != self._running):
                return None
            if not self._background_target and not self._own.is_set:
                return None
            os.kill(os.getpid(), signal.SIGINT)
            return _REPEAT

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Marks the code of earlier cells that the event loop runs between cells."""
        self._background = True
        try:
            yield
        finally:
            self.note_background(False)
            self._background = self._background_target = False

    def note_background(self, runs: bool) -> None:
        """Notes, between cells, since when code of an earlier cell runs, or that none runs."""
        if self._background:
            state.BUSY_SINCE.pack_into(self._memory, state.BUSY_SINCE_AT, time.time() if runs else 0.0)

    def after_fork(self) -> None:
        """Lets interrupts strike anywhere in a child of the cell, by Python's own handler or the cell's."""
        self._main, self._depth, self._running = threading.get_ident(), 0, None
        self.waiting_handlers.clear()

    def renew(self, memory: mmap) -> None:
        """Begins anew in a copy of the process, which has no children, and none of the original's timers."""
        self._memory = memory
        self.older, self._target = set(), None
        self._limit_alarm = SignalAlarm(DIRECT)

    def expose(self) -> None:
        """Lets interrupts strike: the code that follows is the user's."""
        self._depth = 0
        if self._deferred or self.waiting_handlers:
            self._strike_late()

    def protect(self) -> None:
        """Holds interrupts back: the code that follows is ours."""
        while True:
            try:
                self._depth = 1
                return
            except BaseException:  # noqa: BLE001  # it struck on the way in; the code that it was meant for has ended
                continue

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        """Raises the KeyboardInterrupt that came meanwhile."""
        if threading.get_ident() == self._main:
            self._depth -= 1
            if (self._deferred or self.waiting_handlers) and not self._depth:
                self._strike_late()

    def call_waiting_handlers(self) -> None:
        """Calls the handlers for which signals came between cells."""
        with self.in_background():
            self.note_background(True)
            while self.waiting_handlers:
                signum, handler = self.waiting_handlers.popitem()
                call_contained(handler, signum)

    def _strike_late(self) -> None:
        """Handles the signals that came while the kernel's own code ran."""
        if self._deferred:
            self._deferred = False
            if self._limit is None:
                raise KeyboardInterrupt
            self._strike_query()
        while self.waiting_handlers:
            signum, handler = self.waiting_handlers.popitem()
            handler(signum, sys._getframe())

    @property
    def in_own_code(self) -> bool:
        """Whether the main thread, which asks, runs the kernel's own code, and not a cell's."""
        return self._depth > 0 and not (self._background and _is_in_callback(sys._getframe()))

    def _on_handled(self, handler: Handler, signum: int, frame: FrameType | None) -> None:
        """Takes a signal for which a cell has a handler."""
        if not self._depth or (self._background and _is_in_callback(frame)):
            handler(signum, frame)
        else:
            self.waiting_handlers[signum] = handler
            if self._running is None:
                self._wake()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._running is None:
            if self._background_target:
                self._strike_background(frame)
            return
        self._target = None
        self._strike(frame)

    def _on_direct(self, signum: int, frame: FrameType | None) -> None:
        if self._running is None:
            self._strike_background(frame)
        elif self._limit is not None or self.aimed:
            self._strike(frame)

    def _strike_background(self, frame: FrameType | None) -> None:
        if self._background and _is_in_callback(frame):
            self._background_target = False
            raise KeyboardInterrupt

    def _strike_query(self) -> None:
        now = time.monotonic()
        if self._limit is None or now < self._limit:
            return  # it came too late: the next limit is set
        if self._depth:
            self._deferred = True
        else:
            self._limit = now + _AGAIN
            raise TimeUp

    def _strike(self, frame: FrameType | None) -> None:
        if self._limit is not None:
            self._strike_query()
            return
        self._seen = True
        if self._depth:
            self._deferred = True
        elif self._task is not None and _is_suspended(frame):
            self.loop.call_soon_threadsafe(self._task.cancel)
        else:
            raise KeyboardInterrupt


_CALLBACKS = (asyncio.Handle._run.__code__, call_between_cells.__code__)


def _is_in_callback(frame: FrameType | None) -> bool:
    """Tells whether the event loop runs a callback, such as a step of a task, or a cell's signal handler runs."""
    while frame is not None:
        if frame.f_code in _CALLBACKS:
            return True
        frame = frame.f_back
    return False


def _is_suspended(frame: FrameType | None) -> bool:
    """Tells whether the event loop itself, and no callback of it, was running."""
    while frame is not None:
        if frame.f_code is asyncio.Handle._run.__code__:
            return False
        if frame.f_code is asyncio.BaseEventLoop._run_once.__code__:  # type: ignore[attr-defined]
            return True
        frame = frame.f_back
    return False
