"""The event loop of cells. It uses the original clock, and tells the kernel whether it has work."""

from __future__ import annotations

import _socket
import selectors
from collections.abc import Callable
from typing import Any

from kernelbox.guest._descriptors import put_behind
from kernelbox.guest._stdlib import asyncio, select, time
from kernelbox.guest.copies._open_files import renew_epoll
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())


class _Selector(selectors.DefaultSelector):
    """Says when the loop begins to wait, and when it goes on: it runs callbacks in between."""

    step: Callable[[bool], None]

    def select(self, timeout: float | None = None) -> Any:
        self.step(False)
        try:
            return super().select(timeout)
        finally:
            self.step(True)


class Loop(asyncio.SelectorEventLoop):
    """A selector's loop that can tell whether cells have left anything to do in it.

    `step` is called with True before callbacks run, and with False before the loop waits.
    """

    def __init__(self, step: Callable[[bool], None]) -> None:
        selector = _Selector()
        selector.step = step
        super().__init__(selector)
        this: Any = self
        self.wakeup: int = this._ssock.fileno()  # what other threads wake it by

    def time(self) -> float:
        return time.monotonic()

    @property
    def descriptors(self) -> list[int]:
        this: Any = self
        return [this._selector.fileno(), this._ssock.fileno(), this._csock.fileno()]

    def renew(self) -> None:
        """Gives a copy of the process a loop of its own behind the same numbers: what was watched is watched."""
        this: Any = self
        ends = _socket.socketpair()
        for end, number in zip(ends, self.descriptors[1:], strict=True):
            end.setblocking(False)
            put_behind(number, end.detach())
        watched = {
            key.fd: (select.EPOLLIN if key.events & selectors.EVENT_READ else 0)
            | (select.EPOLLOUT if key.events & selectors.EVENT_WRITE else 0)
            for key in this._selector.get_map().values()
        }
        renew_epoll(this._selector.fileno(), watched)
        this._default_executor = None  # its threads were the original's, and idle
        asyncio.set_event_loop(self)

    @property
    def is_quiet(self) -> bool:
        """Whether no cell has left anything to do."""
        this: Any = self
        if this._ready or this._scheduled or len(this._selector._fd_to_key) > 1:
            return False
        try:
            return not asyncio.all_tasks(self)
        except Exception:  # noqa: BLE001  # its weak sets use the built-in names that a cell may have replaced
            return True
