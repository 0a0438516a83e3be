"""Where a process may write, enforced by Landlock (landlock(7)) in addition to read-only mounts.

A read-only mount allows writes to named pipes. So a program outside that takes commands from a named pipe would take
those of a cell.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from kernelbox.guest.walls._system_calls import Unarmed, allow_beneath, enter_domain, landlock_version, make_ruleset

# Before it no file can be moved to another directory in a domain (Linux 5.19).
LEAST_VERSION = 2

# From it on a domain can refuse to cut files (Linux 6.2).
_WITH_TRUNCATE = 3

# LANDLOCK_ACCESS_FS_WRITE_FILE, _REFER, _TRUNCATE.
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14


def keep_to(paths: Iterable[str]) -> None:
    """Lets this process, and all that it forks, write nowhere but at these paths and below them.

    Where the system has no such Landlock, named pipes stay open to cells as they are to the user.
    """
    with contextlib.suppress(Unarmed):
        version = landlock_version()
        if version >= LEAST_VERSION:
            enter(version, paths)


def enter(version: int, paths: Iterable[str], scopes: int = 0) -> None:
    """Enters a domain in which nothing is written but at these paths and below, and that has scopes; raises Unarmed."""
    writing = _WRITE_FILE | (_TRUNCATE if version >= _WITH_TRUNCATE else 0)
    ruleset = make_ruleset(writing | _REFER, scopes)
    try:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # it was there when it was named
                _allow(ruleset, writing, path)
        enter_domain(ruleset)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, writing: int, path: str) -> None:
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        kind = os.fstat(place).st_mode
        if stat.S_ISDIR(kind):
            allow_beneath(ruleset, writing | _REFER, place)
        elif stat.S_ISREG(kind):
            allow_beneath(ruleset, writing, place)
    finally:
        os.close(place)
