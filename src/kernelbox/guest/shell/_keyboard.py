"""The stand-in for a keyboard: `input`, `getpass` and debuggers ask the client, if it answers such questions."""

from __future__ import annotations

import pdb
import sys as user_sys
from typing import Any, Protocol

from IPython.core import debugger
from IPython.core.error import StdinNotImplementedError

from kernelbox.guest._stdlib import os, sys
from kernelbox.wire._builtins import keep_builtins, replace_builtin
from kernelbox.wire._messages import ApprovalRejectedError

keep_builtins(globals())

# Ctrl-D, which front ends send for the end of the input.
_END_OF_FILE = "\x04"


class Person(Protocol):
    """What puts a question to the person at the client, if one is there."""

    allows_input: bool

    def ask_input(self, prompt: str, *, password: bool) -> str: ...


class Debugger(debugger.InterruptiblePdb):
    """Python's debugger, as IPython has it: an interrupt at its prompt ends it, and the cell goes on.

    Python's own takes an interrupt for the wish to see the prompt again, so its cell would never end. A cell that comes
    to another prompt after that is ended.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Otherwise it would replace the kernel's handler of SIGINT by one that only stops at the next line,
        # and a step over `print` would stop in the kernel's own streams.
        super().__init__(*args, **{"nosigint": True, "skip": ["kernelbox.guest.*"], **kwargs})

    def cmdloop(self, intro: Any = None) -> Any:
        try:
            return super().cmdloop(intro)
        except KeyboardInterrupt:
            keyboard.has_left_debugger = True
            raise

    def interaction(self, *args: Any) -> None:
        if keyboard.has_left_debugger:
            raise KeyboardInterrupt
        super().interaction(*args)


class Keyboard:
    """Asks the client for what a cell wants to read, if the client takes such questions."""

    asks: Person | None = None
    has_left_debugger = False  # in this cell, by an interrupt

    def input(self, prompt: object = "", /) -> str:
        """Stands in for `input`."""
        return self._read(str(prompt), password=False)

    def getpass(self, prompt: str = "Password: ", stream: object = None, **_: object) -> str:
        """Stands in for `getpass.getpass`."""
        return self._read(str(prompt), password=True)

    def set_trace(self, *_: object, **__: object) -> None:
        """Stands in for `pdb.set_trace`."""
        self.require()
        Debugger().set_trace(sys._getframe(1))

    def breakpoint(self, *args: object, **kwargs: object) -> Any:
        """Stands in for `sys.breakpointhook`; what PYTHONBREAKPOINT names, or 0, is left to Python's own."""
        if os.environ.get("PYTHONBREAKPOINT"):
            return sys.__breakpointhook__(*args, **kwargs)
        self.require()
        Debugger().set_trace(sys._getframe(1))
        return None

    def require(self) -> None:
        """Raises StdinNotImplementedError if a debugger would find no one to talk with."""
        if self.asks is None or not self.asks.allows_input:
            raise StdinNotImplementedError(
                "there is no debugger here: no one is at the keyboard of this kernel. "
                "Print what you want to know instead."
            )

    def install(self) -> None:
        import builtins
        import getpass

        builtins.input = self.input
        replace_builtin("input", self.input)
        getpass.getpass = self.getpass
        debugger.Pdb = pdb.Pdb = Debugger  # type: ignore[misc]  # what libraries make one of
        debugger.set_trace = pdb.set_trace = self.set_trace
        user_sys.breakpointhook = self.breakpoint

    def _read(self, prompt: str, *, password: bool) -> str:
        """Raises what ipykernel does if no one answers: IPython knows then that `%reset` and `%save` cannot ask."""
        if self.asks is None or not self.asks.allows_input:
            raise StdinNotImplementedError(
                f"input({prompt!r:.200}) cannot be answered: no one is at the keyboard of this kernel. "
                "Put the value into the code instead."
            )
        try:
            text = self.asks.ask_input(prompt, password=password)
        except ApprovalRejectedError as exc:
            raise StdinNotImplementedError(str(exc)) from None
        if text == _END_OF_FILE:
            raise EOFError
        return text


keyboard = Keyboard()
