"""Standard streams that were closed when the command began (`<&-`, `>&-`). Python sets them to None."""

from __future__ import annotations

import os
import sys

_STDIN, _STDOUT, _STDERR = range(3)


def fill_closed_streams() -> None:
    """Gives closed streams a descriptor. Otherwise the next file that is opened would become stdin or stdout.

    Reading that stdin and writing that stdout fail as with a closed stream. Text for stderr is lost.
    """
    for fd, flags in ((_STDIN, os.O_WRONLY), (_STDOUT, os.O_RDONLY), (_STDERR, os.O_WRONLY)):
        if _is_closed(fd):
            null = os.open(os.devnull, flags)  # the lowest number that is free, which is this one
            assert null == fd
    sys.stdin = sys.stdin or os.fdopen(_STDIN, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w", closefd=False)


def _is_closed(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False
