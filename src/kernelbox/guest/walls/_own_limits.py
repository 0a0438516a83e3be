"""How a kernel's process sets its own limits, before any user code runs.

The keeper checks what the operating system does not enforce for a kernel as a whole (`_limit_watch.py`).
"""

from __future__ import annotations

import math
import os
import resource

from kernelbox.usage import _group_usage as _groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Seconds of processor time by which one process may exceed the limit, for its keeper to end it with a better word.
_GRACE = 2

# A sandboxed kernel's limit of open files is this much lower than its user's.
_FOR_OTHERS = 1024

# Seconds, some 270 years: the system counts them in nanoseconds, and takes more for a few.
_MOST_SECONDS = 2**33


def join(groups: list[int]) -> bool:
    """Moves this process into control groups, by descriptors of their `cgroup.procs`; returns whether all took it."""
    joined = True
    for group in groups:
        try:
            os.write(group, b"0")
        except OSError:
            joined = False  # its keeper finds that out, and looks after the limits itself
        os.close(group)
    return joined


def need_keeper(limits: Mapping[str, float], groups: list[str]) -> bool:
    """Tells whether a keeper must check limits that groups do not enforce. Then the kernel must not outlive it."""
    kept = {name for group in groups for name in _groups.limits(group)}
    return bool(limits.keys() & {"memory", "processes", "cpu", "disk"} - kept)


def take(limits: Mapping[str, float], *, alone: bool) -> None:
    """Sets the limits of this process, which its children inherit.

    `alone` says that it is in a sandbox. There it is in a user namespace with its own count of processes: elsewhere all
    that the user runs would count. The superuser's are never counted. It can have fewer files open than its user, so
    that others can still send descriptors when it has sent as many as it can (`send_descriptors`).
    """
    if alone:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        fewer = max(hard - _FOR_OTHERS, hard // 2)
        _set(resource.RLIMIT_NOFILE, min(soft, fewer), fewer)
    if "processes" in limits and alone:
        _set(resource.RLIMIT_NPROC, limits["processes"], limits["processes"])
    if "files" in limits:
        _set(resource.RLIMIT_NOFILE, limits["files"], limits["files"])
    if "file_size" in limits:
        # Writing fails with EFBIG: SIGXFSZ is ignored, as Python has it.
        _set(resource.RLIMIT_FSIZE, limits["file_size"], limits["file_size"])
    if "cpu" in limits:
        seconds = min(math.ceil(limits["cpu"]), _MOST_SECONDS) + _GRACE
        _set(resource.RLIMIT_CPU, seconds, seconds + _GRACE)


def _set(kind: int, soft: float, hard: float) -> None:
    """Lowers a limit; one that is lower already stays."""
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(kind, (int(soft), int(hard)))
