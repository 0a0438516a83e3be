"""Python's own names as they were before any code of a user's: what a cell puts in their place is not used here.

A module that decides or starts what was approved takes the system's modules from here, and its built-in names too.
"""

from __future__ import annotations

import builtins
from types import ModuleType
from typing import TYPE_CHECKING, Any

_builtins = dict(vars(builtins))


def keep_builtins(names: dict[str, Any]) -> None:
    """Has the functions that a module defines after this use the built-in names as they are now.

    `names` are the module's globals: a function takes its built-in names from what `__builtins__` is there when it is
    defined.
    """
    names["__builtins__"] = _builtins


def _copy(module: ModuleType) -> ModuleType:
    copy = ModuleType(module.__name__, module.__doc__)
    copy.__dict__.update(vars(module))
    return copy


if TYPE_CHECKING:
    import fcntl as fcntl
    import os as os
    import select as select
    import signal as signal
    import stat as stat
    import time as time
else:
    import fcntl
    import os
    import select
    import signal
    import stat
    import time

    fcntl, os, select, signal, stat, time = map(_copy, (fcntl, os, select, signal, stat, time))
