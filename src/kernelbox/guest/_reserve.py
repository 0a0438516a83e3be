"""Memory that is given up when there is no other, so that a cell's MemoryError can be told and the kernel lives on."""

from __future__ import annotations

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

# Enough for a traceback and the messages of a few small cells. It is never written to, and so takes address space only.
_SIZE = 8 * 1024 * 1024

_held: list[bytearray] = []


def spend_reserve() -> None:
    """Gives the memory up."""
    _held.clear()


def fill_reserve() -> None:
    """Takes it again, once there is much more than that."""
    if not _held:
        try:
            bytearray(4 * _SIZE)
            _held.append(bytearray(_SIZE))
        except MemoryError:
            pass
