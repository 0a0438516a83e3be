"""What cells change in the interpreter: audit hooks, which see nothing of the kernel's own code, and `sys.modules`.

Python cannot import without some entries of `sys.modules`, and IPython imports in every cell. So the entries from
before any user code are put back when a cell has removed them.
"""

from __future__ import annotations

import sys as user_sys
from collections.abc import Callable, Sequence
from typing import Any

from kernelbox.guest._stdlib import sys
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# What the interpreter uses, even if a cell assigns something else to `sys.modules`.
_modules: dict[str, Any] = sys.modules
_remembered: dict[str, Any] = {}

# Of `sys`: IPython finds out by these what a cell has raised, and where.
_FUNCTIONS = {"_getframe": sys._getframe, "exc_info": sys.exc_info}


def wrap_hooks(is_own_code: Callable[[], bool]) -> None:
    """Makes `sys.addaudithook` add hooks that are not called while the kernel's own code runs."""
    add = user_sys.addaudithook

    def addaudithook(hook: Callable[[str, tuple[object, ...]], None]) -> None:
        def tell(event: str, args: tuple[object, ...]) -> None:
            if not is_own_code():
                hook(event, args)

        add(tell)

    user_sys.addaudithook = addaudithook


def remember_modules() -> None:
    """Remembers what is imported now. Call it in the template: a kernel would copy the memory of all these modules."""
    _remembered.update(_modules)


def restore_what_ipython_needs(streams: Sequence[object]) -> None:
    """Puts back what a cell has replaced or deleted, if no cell could run without it."""
    own = vars(user_sys)
    own.update(_FUNCTIONS)
    own.setdefault("stdout", streams[0])
    own.setdefault("stderr", streams[1])
    if _modules.get("sys") is not user_sys or own.get("modules") is not _modules:
        _restore_modules()


def _restore_modules() -> None:
    """Puts back what a cell has removed, which every import needs."""
    vars(user_sys)["modules"] = _modules
    for name in [name for name, module in list(_modules.items()) if module is None]:
        del _modules[name]  # where there is None no import is tried
    for name, module in _remembered.items():
        _modules.setdefault(name, module)
