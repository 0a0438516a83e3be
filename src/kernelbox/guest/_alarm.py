"""A descriptor that becomes readable some time after it was set, without a thread or a signal: timerfd(2)."""

from __future__ import annotations

import ctypes
from typing import Any

from kernelbox.guest._pristine import contextlib, os
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

_CLOCK_MONOTONIC = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


# Looked up once, in the template. PyDLL keeps the interpreter's lock: giving it up would cost more than the call.
_system = ctypes.PyDLL(None)
_create: Any = getattr(_system, "timerfd_create", None)
_settime: Any = getattr(_system, "timerfd_settime", None)
_Timer = ctypes.c_long * 4  # interval, then delay, each in seconds and nanoseconds


class Alarm:
    """Rings once, `seconds` after `set`; setting and clearing it costs a microsecond.

    Where the system has no timerfd it rings at once, which is only less kind to short cells.
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
