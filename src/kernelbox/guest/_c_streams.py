"""The C library's own stdout, which C code prints to."""

from __future__ import annotations

import ctypes

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

_UNBUFFERED = 2  # _IONBF of stdio.h


def _find_stdout(library: ctypes.CDLL) -> ctypes.c_void_p | None:
    for name in ("stdout", "__stdoutp"):  # what glibc and musl call it, and macOS
        try:
            return ctypes.c_void_p.in_dll(library, name)
        except ValueError:
            continue
    return None


# Looked up once, in the template.
_library = ctypes.PyDLL(None)
_stdout = _find_stdout(_library)


def write_c_stdout_at_once() -> None:
    """Has what C code prints go into the pipe with each call.

    A buffer would be lost when the process is killed, and belong to a fork as well. stderr is not buffered by any C
    library.
    """
    if _stdout is not None:
        _library.setvbuf(_stdout, None, _UNBUFFERED, 0)
