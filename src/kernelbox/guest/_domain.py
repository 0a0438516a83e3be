"""The walls of a guarded kernel: it, and all that it forks, can start no program.

The filter refuses execve(2), Unix sockets (the services behind them start programs for the asking) and what opens other
processes. The domain (landlock(7)) keeps it from the memory and the descriptors of every process outside, such as the
runner and the commands that were approved: those are ordinary programs, and nothing else would. It forbids to write
where a superuser names programs that the system starts (/proc/sys/kernel/core_pattern, /sys/kernel/uevent_helper).
"""

from __future__ import annotations

import os
import stat

from kernelbox.guest._arming import arm
from kernelbox.guest._system_calls import (
    Unarmed,
    allow_beneath,
    enter_domain,
    forbid_new_privileges,
    landlock_version,
    make_ruleset,
)

# Before it no file can be moved to another directory in a domain (Linux 5.19).
_LEAST_VERSION = 2

# From it on a domain can have scopes: what is in it then signals nothing outside of it (Linux 6.12).
_WITH_SCOPES = 6

# LANDLOCK_ACCESS_FS_WRITE_FILE, _REFER; LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, _SIGNAL.
_WRITE_FILE, _REFER = 1 << 1, 1 << 13
_SCOPES = 0b11

# Where nothing is written: what the system itself keeps there starts programs.
_THE_SYSTEMS = ("proc", "sys")


def shut_in(program: bytes) -> None:
    """Puts this process behind the walls, which it never leaves; `program` is for seccomp(2). Raises Unarmed."""
    version = landlock_version()
    if version < _LEAST_VERSION:
        raise Unarmed("Landlock", OSError(0, f"version {version} is too old"))
    forbid_new_privileges()
    ruleset = make_ruleset(_WRITE_FILE | _REFER, _SCOPES if version >= _WITH_SCOPES else 0)
    for name in os.listdir("/"):
        if name not in _THE_SYSTEMS:
            _allow_writing(ruleset, f"/{name}")
    enter_domain(ruleset)
    os.close(ruleset)
    arm(program)


def _allow_writing(ruleset: int, path: str) -> None:
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        kind = os.fstat(place).st_mode
        if stat.S_ISDIR(kind):
            allow_beneath(ruleset, _WRITE_FILE | _REFER, place)
        elif stat.S_ISREG(kind):
            allow_beneath(ruleset, _WRITE_FILE, place)
    finally:
        os.close(place)
