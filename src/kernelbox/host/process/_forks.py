"""What belongs to the process that made it: when that process forks, the fork lets go of it, unheard by any kernel."""

from __future__ import annotations

import os
from weakref import WeakSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Owned(Protocol):
        """What two processes cannot share: a connection, or what waits for one on an event loop."""

        def forget(self) -> None:
            """Closes our copies of its descriptors and does nothing else: all the rest is still our parent's."""
            ...


_owned: WeakSet[Owned] = WeakSet()


def forget_in_forks(thing: Owned) -> None:
    """Has `forget` called in every process that is forked from this one while the thing exists."""
    _owned.add(thing)


def _on_fork() -> None:
    inherited = list(_owned)
    _owned.clear()
    for thing in inherited:
        thing.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)
