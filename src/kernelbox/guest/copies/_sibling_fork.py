"""Forks a copy of this process whose parent is our own parent. A cell's `os.wait()` does not see it; it outlives us.

There are two ways. A process with one thread can ask the system for a sibling (CLONE_PARENT, clone(2)). The fork
handlers of libraries (pthread_atfork(3)) do not run then. Any other process forks twice, and the process in between
ends. The copy becomes an orphan, and its new parent is the next subreaper: our keeper, or the first process of our
sandbox. The filter of a sandbox refuses CLONE_PARENT.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

from kernelbox.guest._stdlib import os, signal, time
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

_CLONE_PARENT = 0x8000
_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_TID_ADDRESS = 40

# The numbers of clone(2) and gettid(2). The order of clone's last two arguments differs, too.
_NUMBERS = {"x86_64": (56, 186), "aarch64": (220, 178)}.get(platform.machine())

# An orphan has a new parent within microseconds.
_PATIENCE = 5.0

# Looked up once, in the template. PyDLL keeps the interpreter's lock, as between the calls that surround a fork.
_system: Any = ctypes.PyDLL(None, use_errno=True)
_python: Any = ctypes.pythonapi


def fork_sibling(*, twice: bool) -> bool:
    """Forks; returns whether this is the copy. Raises OSError. The caller says whether it must fork twice."""
    address = 0 if twice else _thread_id_address()
    return _clone(address) if address else _fork_twice()


def _clone(address: int) -> bool:
    assert _NUMBERS is not None
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID | int(signal.SIGCHLD)
    # The last two are the new thread's local storage, which stays as it is, and where the C library keeps its number.
    places = (address, 0) if platform.machine() == "x86_64" else (0, address)
    _python.PyOS_BeforeFork()
    pid = _system.syscall(*map(ctypes.c_long, (_NUMBERS[0], flags, 0, 0, *places)))
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return True
    error = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, os.strerror(error))
    return False


def _thread_id_address() -> int:
    """Returns where the C library keeps the number of this thread, which a new process needs for itself; 0 if it is
    unknown."""
    found = ctypes.c_void_p()
    if _NUMBERS is None or _system.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(found), 0, 0, 0) != 0 or not found.value:
        return 0
    known = ctypes.c_int.from_address(found.value).value
    return found.value if known == _system.syscall(ctypes.c_long(_NUMBERS[1])) else 0


def _fork_twice() -> bool:
    us = os.getpid()
    _system.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)  # otherwise the orphan would be our child
    _python.PyOS_BeforeFork()
    pid = _system.fork()
    if pid == 0:
        between = _system.getpid()
        if (copy := _system.fork()) != 0:
            _system._exit(0 if copy > 0 else 1)
        _python.PyOS_AfterFork_Child()
        _wait_for_parent(us, between)
        return True
    error, status = ctypes.get_errno(), ctypes.c_int(0)
    if pid > 0:
        _system.waitpid(pid, ctypes.byref(status), 0)
    _python.PyOS_AfterFork_Parent()
    _system.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if pid < 0 or status.value:
        raise OSError(error, os.strerror(error) if pid < 0 else "the second fork failed")
    return False


def _wait_for_parent(*formers: int) -> None:
    """Waits until the process in between has ended, because the keeper accepts only its own children."""
    deadline = time.monotonic() + _PATIENCE
    while os.getppid() in formers and time.monotonic() < deadline:
        time.sleep(0.0001)
