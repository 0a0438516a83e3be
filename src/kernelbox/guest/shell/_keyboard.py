"""The stand-in for a keyboard: `input`, `getpass` and debuggers ask the client, if it answers such questions."""

from __future__ import annotations

import pdb
import sys as user_sys
from typing import Any, Protocol

from IPython.core.error import StdinNotImplementedError

from kernelbox.guest._stdlib import os, sys
from kernelbox.wire._builtins import keep_builtins, replace_builtin
from kernelbox.wire._messages import ApprovalRejectedError

keep_builtins(globals())

# Ctrl-D, which front ends send for the end of the input.
_END_OF_FILE = "\x04"


class InputUnavailable(StdinNotImplementedError):
    """Raised by `input()`, `getpass()` and debuggers: there is no keyboard.

    IPython knows what to do then: `%reset` does not ask, `%save` replaces no file.
    """


class Person(Protocol):
    """What puts a question to the person at the client, if one is there."""

    allows_input: bool

    def ask_input(self, prompt: str, *, password: bool) -> str: ...


class Keyboard:
    """Asks the client for what a cell wants to read, if the client takes such questions."""

    asks: Person | None = None

    def input(self, prompt: object = "", /) -> str:
        """Stands in for `input`."""
        return self._read(str(prompt), password=False)

    def getpass(self, prompt: str = "Password: ", stream: object = None, **_: object) -> str:
        """Stands in for `getpass.getpass`."""
        return self._read(str(prompt), password=True)

    def set_trace(self, *_: object, **__: object) -> None:
        """Stands in for `pdb.set_trace`."""
        self.require()
        pdb.Pdb().set_trace(sys._getframe(1))

    def breakpoint(self, *args: object, **kwargs: object) -> Any:
        """Stands in for `sys.breakpointhook`; what PYTHONBREAKPOINT names, or 0, is left to Python's own."""
        if os.environ.get("PYTHONBREAKPOINT"):
            return sys.__breakpointhook__(*args, **kwargs)
        self.require()
        pdb.Pdb().set_trace(sys._getframe(1))
        return None

    def require(self) -> None:
        """Raises InputUnavailable if a debugger would find no one to talk with."""
        if self.asks is None or not self.asks.allows_input:
            raise InputUnavailable(
                "there is no debugger here: no one is at the keyboard of this kernel. "
                "Print what you want to know instead."
            )

    def install(self) -> None:
        import builtins
        import getpass

        builtins.input = self.input
        replace_builtin("input", self.input)
        getpass.getpass = self.getpass
        pdb.set_trace = self.set_trace
        user_sys.breakpointhook = self.breakpoint

    def _read(self, prompt: str, *, password: bool) -> str:
        if self.asks is None or not self.asks.allows_input:
            raise InputUnavailable(
                f"input({prompt!r:.200}) cannot be answered: no one is at the keyboard of this kernel. "
                "Put the value into the code instead."
            )
        try:
            text = self.asks.ask_input(prompt, password=password)
        except ApprovalRejectedError as exc:
            raise InputUnavailable(str(exc)) from None
        if text == _END_OF_FILE:
            raise EOFError
        return text


keyboard = Keyboard()
