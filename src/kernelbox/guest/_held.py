"""Lines that no interrupt may cut in two, in a kernel and in the runner's process that types into bash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kernelbox.guest._pristine import contextlib
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())


class Holds(Protocol):
    """What holds interrupts back between `enter` and `leave`."""

    def enter(self) -> None: ...

    def leave(self) -> None: ...


_installed: Holds | None = None


def hold_by(holds: Holds) -> None:
    """Has `held` hold interrupts back by this, from now on."""
    global _installed
    _installed = holds


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Holds interrupts back in a few lines that must not be cut in two, such as the start of a process."""
    holds = _installed
    if holds is None:
        yield
        return
    holds.enter()
    try:
        yield
    finally:
        holds.leave()
