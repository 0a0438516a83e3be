"""Audit hooks of cells: they are told what cells do, and may forbid it, but nothing of what the kernel itself does."""

from __future__ import annotations

import sys as user_sys
from collections.abc import Callable

from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())


def wrap_hooks(is_own_code: Callable[[], bool]) -> None:
    """Has `sys.addaudithook` add hooks that are not called while our own code runs; they cannot be removed again."""
    add = user_sys.addaudithook

    def addaudithook(hook: Callable[[str, tuple[object, ...]], None]) -> None:
        def tell(event: str, args: tuple[object, ...]) -> None:
            if not is_own_code():
                hook(event, args)

        add(tell)

    user_sys.addaudithook = addaudithook
