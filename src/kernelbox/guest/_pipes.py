"""The size of the pipes that a kernel's text goes through.

A kernel empties its pipes itself, within milliseconds. It cannot while C code holds the interpreter, and such code
waits when a pipe is full: the keeper enlarges it then.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
import termios

# What a pipe has room for, pipe(7), and what every user may enlarge it to (fs.pipe-max-size). The kernel must be able
# to take so much when a cell ends: guest/_outbox.py.
_USUAL = 64 * 1024
_LARGE = 1024 * 1024


def fit_pipe(pipe: int) -> None:
    """Enlarges a pipe that is more than half full, and makes an empty one as small as it was.

    Each write(2) may begin a page, so a pipe can be full when it holds half of what it could.
    """
    if pipe < 0 or not hasattr(fcntl, "F_SETPIPE_SZ"):
        return
    with contextlib.suppress(OSError):  # the user has enlarged too many
        size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        waiting = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        if size < _LARGE and 2 * waiting > size:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _LARGE)
        elif size > _USUAL and not waiting:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _USUAL)
