"""The limits of a kernel on the host's side: preparing them, measuring what the kernel uses, cleaning up."""

from __future__ import annotations

import sys

from kernelbox.base._errors import StartFailed
from kernelbox.host.engines._spawning import inode_of_home
from kernelbox.host.process._control_groups import make_groups, remove_groups
from kernelbox.usage import _group_usage as _groups
from kernelbox.usage._disk_usage import Walk
from kernelbox.usage._processes import exact_memory, look_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.store._record import KernelRecord

# The most files of a working directory with a limit of its size. They are counted whenever the size may have changed.
_MOST_FILES = 200_000

# Limits that systems other than Linux can enforce for each process.
_PORTABLE = {"files", "file_size"}


def prepare_limits(record: KernelRecord, home: str, *, use_groups: bool) -> int:
    """Prepares the limits of a kernel; returns the size of its working directory in bytes, without the home.

    Raises StartFailed if the limits cannot be enforced.
    """
    refused = sorted(record.limits.keys() - _PORTABLE)
    if sys.platform != "linux" and refused:
        raise StartFailed(
            f"kernel {record.name!r} cannot be started with limits for {', '.join(refused)}: these need Linux; here "
            f"only {' and '.join(sorted(_PORTABLE))} can be limited"
        )
    disk_before = _measure_directory(record, home) if "disk" in record.limits else 0
    record.groups = make_groups(record.kernel_id, record.limits) if use_groups else []
    return disk_before


def release_limits(record: KernelRecord) -> None:
    """Removes the control groups of a kernel that has ended; mostly its keeper has done so."""
    remove_groups(record.groups)
    record.groups = []


def measured(records: list[KernelRecord]) -> list[KernelRecord]:
    """Fills in the usage of each live kernel and of everything it has started."""
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


def _measure_directory(record: KernelRecord, home: str) -> int:
    walk = Walk(record.cwd, but=inode_of_home(home, record.cwd))
    if not walk.step(_MOST_FILES):
        raise StartFailed(
            f"kernel {record.name!r} cannot be started with a limit for disk: its working directory {record.cwd!r} has "
            f"more than {_MOST_FILES:,} files, which take too long to count; give it a directory of its own"
        )
    return walk.bytes
