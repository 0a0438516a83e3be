"""The system's modules as they were before any code of a user's: what a cell puts in their place is not used here.

A module that decides or starts what was approved takes them from here, and its built-in names from `wire/_pristine.py`.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING


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
