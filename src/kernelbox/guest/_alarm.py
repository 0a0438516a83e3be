"""Alarms without a thread: by a descriptor, timerfd(2), or by a signal, timer_create(2)."""

from __future__ import annotations

import ctypes
from typing import Any

from kernelbox.guest._descriptors import put_behind
from kernelbox.guest._stdlib import contextlib, os
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


# Looked up once, in the template. PyDLL keeps the interpreter's lock: giving it up would cost more than the call.
_system = ctypes.PyDLL(None)
_create: Any = getattr(_system, "timerfd_create", None)
_settime: Any = getattr(_system, "timerfd_settime", None)
_Timer = ctypes.c_long * 4  # interval, then delay, each in seconds and nanoseconds
_create_signals: Any = getattr(_system, "timer_create", None)
_set_signals: Any = getattr(_system, "timer_settime", None)


class Alarm:
    """Rings once, `seconds` after `set`; setting and clearing it costs a microsecond.

    Where the system has no timerfd, it rings at once. Then the helper wakes for short cells, too.
    """

    def __init__(self, seconds: float) -> None:
        self._pipe = -1
        if _create is None:
            self.fd, self._pipe = os.pipe()
            os.set_blocking(self.fd, False)
            return
        self.fd = int(_create(_CLOCK_MONOTONIC, _FLAGS))
        if self.fd < 0:
            raise OSError("timerfd_create failed: too many open files?")
        self._settime = _settime
        self._on = _Timer(0, 0, int(seconds), int(seconds % 1 * 1e9))
        self._off = _Timer(0, 0, 0, 0)

    def renew(self) -> None:
        """Puts a new timer behind the same number, in a copy of the process, which would share the old one."""
        put_behind(self.fd, int(_create(_CLOCK_MONOTONIC, _FLAGS)))

    def set(self) -> None:
        if self._pipe >= 0:
            os.write(self._pipe, b"x")
        else:
            self._settime(self.fd, 0, self._on, None)

    def clear(self) -> None:
        if self._pipe >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self.fd, 4096)
        else:
            self._settime(self.fd, 0, self._off, None)


class _SignalEvent(ctypes.Structure):
    """The argument of timer_create(2): a value that is passed on, then the signal."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),  # 0 is SIGEV_SIGNAL
        ("rest", ctypes.c_char * 48),
    )


class SignalAlarm:
    """Sends this process a signal, `seconds` after `set` and again each time they have passed, until `clear`.

    The operating system sends it, so it arrives while C code holds the interpreter's lock. Where the system has no such
    timers, no signal is sent.
    """

    def __init__(self, number: int) -> None:
        self._timer = ctypes.c_void_p()
        event = _SignalEvent(signal=number)
        made = _create_signals is not None and not _create_signals(
            _CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)
        )
        self._settime = _set_signals if made else None

    def set(self, seconds: float) -> None:
        self._start(_Timer(*2 * (int(seconds), int(seconds % 1 * 1e9))))

    def clear(self) -> None:
        self._start(_Timer(0, 0, 0, 0))

    def _start(self, timer: object) -> None:
        if self._settime is not None:
            self._settime(self._timer, 0, timer, None)
