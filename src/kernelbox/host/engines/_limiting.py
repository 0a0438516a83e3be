"""The limits of a kernel as its hosts see them: what is prepared, what it uses, what it leaves behind."""

from __future__ import annotations

import os
import sys

from kernelbox.base._errors import StartFailed
from kernelbox.host.process._control_groups import make_groups, remove_groups
from kernelbox.usage import _group_usage as _groups
from kernelbox.usage._disk_usage import Walk
from kernelbox.usage._processes import exact_memory, look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.store._record import KernelRecord

# Files of a working directory that are counted for a limit of its size, every time that its size may have changed.
_MOST_FILES = 200_000

# What systems other than Linux keep by themselves, for each process.
_PORTABLE = {"files", "file_size"}


def prepare_limits(record: KernelRecord, home: str, *, use_groups: bool) -> int:
    """Makes what a kernel needs to be kept within its limits; returns the bytes that its working directory holds, but
    for those of the home.

    Raises StartFailed if the limits cannot be kept.
    """
    refused = sorted(record.limits.keys() - _PORTABLE)
    if sys.platform != "linux" and refused:
        raise StartFailed(
            f"kernel {record.name!r} cannot be started with limits for {', '.join(refused)}: these need Linux, which "
            f"tells what the processes of a kernel use; here only {' and '.join(sorted(_PORTABLE))} can be limited"
        )
    disk_before = _measure_directory(record, home) if "disk" in record.limits else 0
    record.groups = make_groups(record.kernel_id, record.limits) if use_groups else []
    return disk_before


def release_limits(record: KernelRecord) -> None:
    """Removes what was made for the limits of a kernel that has ended; most keepers have."""
    remove_groups(record.groups)
    record.groups = []


def measured(records: list[KernelRecord]) -> list[KernelRecord]:
    """Fills in what each live kernel uses, with all that it has started; of others nothing."""
    for record in records:
        record.usage = _measure(record, record.pid) if record.alive and record.pid is not None else None
    return records


def _measure(record: KernelRecord, pid: int) -> dict[str, float] | None:
    tree = look_at(pid)
    if not tree.pids:
        return None
    memory = [used for group in record.groups if (used := _groups.memory(group)) is not None]
    cpu = [seconds for group in record.groups if (seconds := _groups.cpu_seconds(group)) is not None]
    return {
        "memory": memory[0] if memory else exact_memory(tree.pids, pid),
        "cpu": round(cpu[0] if cpu else tree.seconds, 3),
        "processes": tree.tasks,
    }


def inode_of_home(home: str, cwd: str) -> int:
    """Returns what tells a home from other directories below a working directory; 0 if it is on another file system."""
    try:
        info, other = os.stat(home), os.stat(cwd)
    except OSError:
        return 0
    return info.st_ino if info.st_dev == other.st_dev else 0


def _measure_directory(record: KernelRecord, home: str) -> int:
    walk = Walk(record.cwd, but=inode_of_home(home, record.cwd))
    if not walk.step(_MOST_FILES):
        raise StartFailed(
            f"kernel {record.name!r} cannot be started with a limit for disk: its working directory {record.cwd!r} has "
            f"more than {_MOST_FILES:,} files, which take too long to count; give it a directory of its own"
        )
    return walk.bytes
