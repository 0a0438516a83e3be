"""The notice that a cell waits because the kernel is busy with another one."""

from __future__ import annotations

import os
import sys
import time
from _thread import start_new_thread

from kernelbox.api._configured import kernels
from kernelbox.base._errors import KernelBoxError
from kernelbox.base._light_stdlib import Flag
from kernelbox.cli.terminal._output import say, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

# Seconds before the first notice, and between two of them on a terminal.
_EVERY = 1.0


class WaitingNotice:
    """While entered, it says on stderr that another cell runs: on a terminal with the seconds, elsewhere once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._over, self._silent = Flag(), Flag()

    def __enter__(self) -> Self:
        start_new_thread(self._watch, ())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the notice, and removes it from the terminal."""
        self._over.set()
        self._silent.wait(_EVERY)

    def _watch(self) -> None:
        try:
            self._tell_while_busy()
        finally:
            self._silent.set()

    def _tell_while_busy(self) -> None:
        began, on_screen, told = time.monotonic(), sys.stderr.isatty(), False
        while not self._over.wait(_EVERY) and (name := self._find_busy()):
            waited = f"waiting for another cell of {name!r}"
            if on_screen:
                tell(f"\r\x1b[K{waited}, {time.monotonic() - began:.0f} s")
            elif not told:
                say(waited)
            told = True
        if on_screen and told:
            tell("\r\x1b[K")

    def _find_busy(self) -> str:
        """Returns the kernel's name if the cell of another process runs in it, or ""."""
        here = kernels()
        try:
            record = here.find(self._key)
            state = None if record is None else here.kernel(record).state()
        except KernelBoxError:
            return ""  # the cell's own thread reports it
        if record is None or state is None or state.activity != "busy" or state.client in (0, os.getpid()):
            return ""
        return record.name
