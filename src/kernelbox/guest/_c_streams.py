"""The C library's own stdout, which C code prints to: line-buffered like Python's, flushed at the end of each cell."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

_LINE_BUFFERED = 1  # _IOLBF of stdio.h


def _find_stdout(library: ctypes.CDLL) -> ctypes.c_void_p | None:
    for name in ("stdout", "__stdoutp"):  # what glibc and musl call it, and macOS
        try:
            return ctypes.c_void_p.in_dll(library, name)
        except ValueError:
            continue
    return None


# Looked up once, in the template. PyDLL keeps the interpreter's lock, which is right for a question; flushing may have
# to wait, and gives it up.
_asking, _waiting = ctypes.PyDLL(None), ctypes.CDLL(None)
_stdout = _find_stdout(_asking)
_setvbuf, _fflush = _asking.setvbuf, _waiting.fflush
_pending: Any = getattr(_asking, "__fpending", None)
if _pending is not None:
    _pending.restype = ctypes.c_size_t


class CStdout:
    """A FILE that would be block-buffered, because it is a pipe. stderr is not buffered by any C library."""

    def __init__(self) -> None:
        if _stdout is not None:
            _setvbuf(_stdout, None, _LINE_BUFFERED, 0)

    def flush(self, before: Callable[[], None]) -> None:
        """Writes what waits in the buffer; `before` is called first, to see that the pipe is read meanwhile."""
        if _stdout is not None and (_pending is None or _pending(_stdout)):
            before()
            _fflush(_stdout)
