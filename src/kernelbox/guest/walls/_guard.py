"""The guard of a kernel: the kernel, and all that it forks, can start no program.

The filter refuses execve(2), Unix sockets (the services behind them start programs for the asking) and what opens other
processes. The domain (landlock(7)) keeps it from the memory and the descriptors of every process outside, such as the
runner and the commands that were approved: those are ordinary programs, and nothing else would. It forbids to write
where a superuser names programs that the system starts (/proc/sys/kernel/core_pattern, /sys/kernel/uevent_helper).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from kernelbox.guest.walls._landlock import LEAST_VERSION, enter
from kernelbox.guest.walls._system_calls import Unarmed, forbid_new_privileges, give_up_privileges, landlock_version

# From it on a domain can have scopes: what is in it then signals nothing outside of it (Linux 6.12).
_WITH_SCOPES = 6

# LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, _SIGNAL.
_SCOPES = 0b11

# Where nothing is written: what the system itself keeps there starts programs.
_THE_SYSTEMS = ("/proc", "/sys")

# What is mounted there, and can be mounted elsewhere as well, as it is in the directory of a chroot.
_OF_THE_SYSTEM = ("proc", "sysfs", "binfmt_misc", "cgroup", "cgroup2", "debugfs", "tracefs", "configfs", "securityfs")


def shut_in(program: bytes) -> None:
    """Puts this process behind the walls, which it never leaves; `program` is for seccomp(2). Raises Unarmed."""
    version = landlock_version()
    if version < LEAST_VERSION:
        raise Unarmed("Landlock", OSError(0, f"version {version} is too old"))
    forbid_new_privileges()
    open_places = _without("/", {*_THE_SYSTEMS, *_mounted_elsewhere()})
    enter(version, open_places, _SCOPES if version >= _WITH_SCOPES else 0)
    give_up_privileges(program)


def _mounted_elsewhere() -> list[str]:
    """Returns where else such file systems are mounted. Only the superuser can write there."""
    if os.geteuid() != 0:
        return []
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        lines = [line.split(" ") for line in file]
    places = [fields[4] for fields in lines if fields[fields.index("-") + 1] in _OF_THE_SYSTEM]
    return [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place) for place in places]


def _without(directory: str, left_out: set[str]) -> Iterator[str]:
    """Yields what is in a directory but `left_out`; of a directory that contains such a place, its other entries."""
    try:
        names = os.listdir(directory)
    except PermissionError:
        return  # a sandbox hides it
    for path in (os.path.join(directory, name) for name in names):
        if path in left_out:
            continue
        if any(other.startswith(f"{path}/") for other in left_out):
            yield from _without(path, left_out)
        else:
            yield path
