"""The C library's own stdout, which C code prints to: line-buffered like Python's, flushed at the end of each cell."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_LINE_BUFFERED = 1  # _IOLBF of stdio.h

# What the C library calls it: glibc and musl, macOS.
_NAMES = ("stdout", "__stdoutp")


class CStdout:
    """A FILE that would be block-buffered, because it is a pipe. stderr is not buffered by any C library."""

    def __init__(self) -> None:
        # PyDLL keeps the interpreter's lock, which is right for a question; flushing may have to wait, and gives it up.
        asking, waiting = ctypes.PyDLL(None), ctypes.CDLL(None)
        self._file = next((_find(asking, name) for name in _NAMES if _find(asking, name)), None)
        self._flush = waiting.fflush
        self._pending = getattr(asking, "__fpending", None)
        if self._pending is not None:
            self._pending.restype = ctypes.c_size_t
        if self._file is not None:
            asking.setvbuf(self._file, None, _LINE_BUFFERED, 0)

    def flush(self, before: Callable[[], None]) -> None:
        """Writes what waits in the buffer; `before` is called first, to see that the pipe is read meanwhile."""
        if self._file is not None and (self._pending is None or self._pending(self._file)):
            before()
            self._flush(self._file)


def _find(library: ctypes.CDLL, name: str) -> ctypes.c_void_p | None:
    try:
        return ctypes.c_void_p.in_dll(library, name)
    except ValueError:
        return None
