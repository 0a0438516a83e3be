"""Objects that belong to the process that made them: a fork closes its copies, and no kernel notices."""

from __future__ import annotations

import os

from kernelbox.base._light_stdlib import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Owned(Protocol):
        """An object that two processes cannot share, such as a connection."""

        def forget(self) -> None:
            """Closes the fork's copies of its descriptors, and does nothing else: the rest belongs to the parent."""


_owned: set[ref[Owned]] = set()


def forget_in_forks(thing: Owned) -> None:
    """Calls `forget` in every process that is forked from this one while the object exists."""
    _owned.add(ref(thing, _owned.discard))


def _on_fork() -> None:
    inherited = [owned() for owned in list(_owned)]
    _owned.clear()
    for thing in inherited:
        if thing is not None:
            thing.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)
