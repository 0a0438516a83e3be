"""Guards that leave `!` as the only way to start a process from a cell.

An audit hook (PEP 578) sees every way that CPython itself offers, under whatever name it is imported, and cannot be
removed. It still is Python guarding against Python: code that calls into the C library, or digs in this module, goes
round it. It keeps honest code on the path where commands are approved; a sandbox is what stops the other kind.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

# Audit events (docs.python.org/3/library/audit_events.html) that precede the start of a program.
_EVENTS = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn"}
)

# What ctypes would have to find in the C library to do the same.
_SYMBOLS = frozenset(
    {"system", "popen", "fork", "vfork", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe"}
    | {"fexecve", "posix_spawn", "posix_spawnp", "clone", "syscall"}
)

_state = threading.local()
_restricted = False
_installed = False
_home = 0


def restrict(on: bool) -> None:
    """Switches the guards on or off for the executions from here on."""
    global _restricted
    if on and not _installed:
        _install()
    _restricted = on


@contextlib.contextmanager
def lifted() -> Iterator[None]:
    """Lets this thread start one of our own, approved commands."""
    before = getattr(_state, "lifted", False)
    _state.lifted = True
    try:
        yield
    finally:
        _state.lifted = before


def _install() -> None:
    global _installed, _home
    _installed, _home = True, os.getpid()
    _guard_fork_exec()
    sys.addaudithook(_on_event)


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    if not _restricted or getattr(_state, "lifted", False):
        return
    if event in _EVENTS:
        _refuse(event)
    elif event in ("os.fork", "os.forkpty") and _is_spawning():
        _refuse("os.spawn")
    elif event == "ctypes.dlsym" and args[1] in _SYMBOLS:
        _refuse(f"ctypes, {args[1]}()")


def _is_spawning() -> bool:
    """Tells whether os.spawn* is about to fork: its child would swallow the error and only exit with 127."""
    frame = sys._getframe(2)
    return frame.f_code is os._spawnvef.__code__  # type: ignore[attr-defined]  # where all of them meet


def _guard_fork_exec() -> None:
    """Guards the function below subprocess and multiprocessing, which announces itself to no audit hook."""
    import _posixsubprocess

    original = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> int:
        _on_event("subprocess.Popen", args)
        return original(*args)

    _posixsubprocess.fork_exec = fork_exec


def _refuse(what: str) -> None:
    message = f"starting a process directly ({what}) is not allowed here; use !command, which asks for approval"
    if os.getpid() != _home:
        os.write(2, f"RuntimeError: {message}\n".encode())  # in a fork nobody would see the exception
    raise _Refusal(message)


# Libraries that probe the machine with a command (matplotlib's `fc-list`, platform's `uname`) do without when that
# fails with an OSError; everybody else is told that it is a RuntimeError, which it also is.
_Refusal = type("RuntimeError", (RuntimeError, PermissionError), {"__module__": "builtins"})
