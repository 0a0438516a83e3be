"""Signals that come while a cell forks."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps

from kernelbox.guest._pristine import signal, threading
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())


class Forks:
    """Holds back, in the thread that forks, the signals whose handlers are the kernel's until the child has its own.

    A signal that came to the child in between would be taken by the kernel's handler there, and be lost: Python forgets
    in a child what has been caught and not handled.
    """

    def __init__(self) -> None:
        self._masks: dict[int, set[int]] = {}

    def block(self) -> None:
        mask = _signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        self._masks[threading.get_ident()] = mask

    def unblock(self) -> None:
        if (mask := self._masks.pop(threading.get_ident(), None)) is not None:
            _signal.pthread_sigmask(signal.SIG_SETMASK, mask)
