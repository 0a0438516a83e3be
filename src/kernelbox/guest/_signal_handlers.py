"""Signal handlers of cells. They run at once in a cell's code, and never in the middle of the kernel's own.

A handler may raise, and an exception in the kernel's own code would tear a message or end the kernel. So what a cell
gives to `signal.signal` is wrapped: while the kernel's own code runs, the call waits. Between cells an exception of a
handler is shown with the next execution, and goes no further.

The kernel's own handlers stand in for Python's defaults. A cell sees the default in their place. When it sets the
default again, the kernel's own handler comes back.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps
import sys as user_sys
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from kernelbox.guest._stdlib import sys, threading
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

Handler = Callable[[int, FrameType | None], object]

_set: Callable[[int, Any], Any] = _signal.signal
get_handler: Callable[[int], Any] = _signal.getsignal


def set_handler(number: int, handler: Any) -> None:
    """Sets a handler that is called no matter which code runs."""
    _set(number, handler if callable(handler) else int(handler))  # the enum's members are not known down there


class Own:
    """One of the kernel's own handlers, and the defaults that a cell sees in its place."""

    def __init__(self, number: int, handler: Handler, *stands_for: Any) -> None:
        self._number = number
        self._handler = handler
        self._stands_for = stands_for
        self.shown = stands_for[0]
        _owns[number] = self
        self.restore()

    @property
    def is_set(self) -> bool:
        return get_handler(self._number) is self._handler

    def restore(self) -> None:
        """Sets it again if a cell has replaced it."""
        self.shown = self._stands_for[0]
        if not self.is_set:
            _set(self._number, self._handler)

    def accept(self, handler: Any) -> bool:
        """Sets it, if a cell asks for one of its defaults; returns whether it did."""
        if not any(handler is known for known in self._stands_for):
            return False
        _set(self._number, self._handler)
        self.shown = handler
        return True


_owns: dict[int, Own] = {}


def give_up_own() -> None:
    """Sets the handlers of a forked child to what cells see."""
    for number, own in _owns.items():
        if own.is_set:
            _set(number, own.shown)
    _owns.clear()


class Wrapped:
    """A cell's handler, which `call` calls or keeps for later."""

    def __init__(self, handler: Handler, call: Callable[[Handler, int, FrameType | None], None]) -> None:
        self.handler = handler
        self._call = call

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self._call(self.handler, signum, frame)


def wrap_handlers(call: Callable[[Handler, int, FrameType | None], None]) -> None:
    """Makes `signal.signal` wrap the handler that it is given, and `signal.getsignal` return the original."""

    def getsignal(number: int, /) -> Any:
        handler, own = get_handler(number), _owns.get(number)
        if own is not None and own.is_set:
            return own.shown
        return handler.handler if type(handler) is Wrapped else handler

    def signal(number: int, handler: Any, /) -> Any:
        previous, own = getsignal(number), _owns.get(number)
        if own is None or not own.accept(handler):
            _set(number, Wrapped(handler, call) if callable(handler) else handler)
        return previous

    _signal.signal, _signal.getsignal = signal, getsignal


def call_contained(handler: Handler, signum: int) -> None:
    """Calls a handler between cells, and shows the whole of what it raises, even if other signals arrive."""
    try:
        call_between_cells(handler, signum)
    except BaseException as exc:  # noqa: BLE001  # no cell runs that it could be an error of
        try:
            text = "".join(traceback.format_exception(type(exc), exc, _without_ours(exc.__traceback__)))
            print(text, end="", file=user_sys.stderr)
        except BaseException:  # noqa: BLE001  # a cell can replace stderr and linecache
            return


def call_between_cells(handler: Handler, signum: int) -> None:
    """Calls a handler. Interrupts and other handlers may strike meanwhile, because it is user code."""
    handler(signum, sys._getframe())


def _without_ours(tb: TracebackType | None) -> TracebackType | None:
    """Returns the part of a traceback below the two functions above."""
    called = tb.tb_next if tb is not None else None
    return called.tb_next if called is not None else None


class ForkSignals:
    """Blocks signals with handlers of the kernel, in the thread that forks, until the child has handlers of its own.

    Otherwise the kernel's handler would take a signal in the child, and it would be lost: Python forgets in a child
    what was caught and not handled.
    """

    def __init__(self) -> None:
        self._masks: dict[int, set[int]] = {}

    def block(self) -> None:
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGINT, _signal.SIGTERM))
        self._masks[threading.get_ident()] = mask

    def unblock(self) -> None:
        if (mask := self._masks.pop(threading.get_ident(), None)) is not None:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
