"""Memory that is freed when a cell has taken all, so that its MemoryError can be reported and the kernel lives on."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Enough for a traceback and the messages of a few small cells. It is never written to, and so takes address space only.
_SIZE = 8 * 1024 * 1024

_held: list[mmap] = []


def spend_reserve() -> None:
    while _held:
        _held.pop().close()


def fill_reserve() -> None:
    """Takes the reserve again, once there is plenty of memory."""
    if not _held:
        try:
            mmap(-1, 4 * _SIZE).close()
            _held.append(mmap(-1, _SIZE, flags=MAP_PRIVATE | MAP_ANONYMOUS))  # the forks of cells have their own
        except (MemoryError, OSError):
            pass
