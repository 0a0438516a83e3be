"""Work that nobody waits for: a thread does it soon, and in any case before the process ends."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# The thread rests so many times as long as the work took: the work uses at most a tenth of a processor.
_REST = 9


class Deferral:
    """Calls a function after each request, once for all requests that have come meanwhile."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._is_wanted = False
        self._worker = 0  # the process whose thread works; a fork of it has no such thread

    def ask(self) -> None:
        """Asks for the work. It begins after this call, even if it is being done now."""
        self._is_wanted = True
        if self._worker == os.getpid():
            return
        self._worker = os.getpid()
        import threading  # few homes are so large that anything is deferred

        try:
            threading.Thread(target=self._run, name="kernelbox-deferral").start()  # the interpreter waits for its end
        except RuntimeError:  # the interpreter is ending, or the system allows no more threads
            self._worker, self._is_wanted = 0, False
            self._work()

    def _run(self) -> None:
        import threading

        while self._is_wanted:
            self._is_wanted, began = False, time.monotonic()
            self._work()
            threading.main_thread().join(_REST * (time.monotonic() - began))  # no rest for a process that ends
        self._worker = 0
        if self._is_wanted:
            self.ask()  # type: ignore[unreachable]  # for a thread that still saw this one at work
