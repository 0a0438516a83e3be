"""What a process and all that it has started use, by what /proc says (proc(5))."""

from __future__ import annotations

import os

# Memory is told exactly by smaps_rollup, whose reading waits for a process that is just forking, and takes the longer
# the more memory it has. Of more processes than this, so many are asked, and the others taken to be like them.
_MOST_ASKED = 64

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# What in smaps_rollup a process takes from others: not the files that it has mapped, which the system can take back.
_TAKEN = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


class Tree:
    """Processes and those below them, as they were at one moment.

    `resident` counts what processes share as often as they do. `cpu` are the seconds of those that live, by pid;
    `waited` those of processes that have ended and been waited for.
    """

    __slots__ = ("cpu", "pids", "resident", "tasks", "waited")

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.tasks = 0
        self.resident: dict[int, int] = {}
        self.cpu: dict[int, float] = {}
        self.waited = 0.0

    def __repr__(self) -> str:
        return f"<Tree of {len(self.pids)} processes>"

    @property
    def seconds(self) -> float:
        """Processor time, of those that live and of those that were waited for."""
        return sum(self.cpu.values()) + self.waited


def look_at(*roots: int, most_tasks: float = 0) -> Tree:
    """Returns processes and those below them; no more than it takes to find more tasks than `most_tasks`, if given."""
    tree, waiting = Tree(), list(roots)
    while waiting:
        pid = waiting.pop()
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if not fields:
            continue  # it has ended
        threads = max(1, int(fields[17]))
        tree.pids.append(pid)
        tree.tasks += threads
        tree.cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        tree.waited += (int(fields[13]) + int(fields[14])) / _TICKS
        tree.resident[pid] = int(fields[21]) * _PAGE
        if most_tasks and tree.tasks > most_tasks:
            break
        waiting += _children(pid, threads)
    return tree


def page_tables(pids: list[int]) -> int:
    """Returns the bytes that the system itself keeps for the addresses of processes."""
    asked = _sample(pids)
    lines = (line for pid in asked for line in _read(f"/proc/{pid}/status").splitlines())
    kilobytes = sum(int(line.split()[1]) for line in lines if line.startswith(b"VmPTE:"))
    return kilobytes * 1024 * len(pids) // max(1, len(asked))


def _sample(pids: list[int]) -> list[int]:
    return pids[:: len(pids) // _MOST_ASKED + 1]


def exact_memory(pids: list[int], kernel: int) -> int:
    """Returns the bytes that processes take from others, each page counted once, with the shared memory they hold open.

    Files of memory that no process has open or mapped are among them only in file systems that the kernel, which is one
    of them, has for itself, as in a sandbox.
    """
    asked = _sample(pids)
    anonymous = shared = 0
    held: dict[tuple[int, int], int] = {}
    for pid in asked:
        told = _read(f"/proc/{pid}/smaps_rollup")
        if not told and hide([pid], kernel):
            anonymous += _resident(pid)
        for line in told.splitlines():
            if line.startswith(_TAKEN):
                amount = int(line.split()[1]) * 1024
                if line.startswith(b"Pss_Shmem:"):
                    shared += amount
                else:
                    anonymous += amount
    for pid in pids:  # each: what one has open tells nothing of the others
        held |= _held_memory(pid)
    if pids:
        private = _private_memory(kernel)
        held = {inode: amount for inode, amount in held.items() if inode[0] not in private}
        held |= {(device, 0): amount for device, amount in private.items()}
    scale = len(pids) / len(asked) if asked else 1
    return int(anonymous * scale + max(shared * scale, sum(held.values()))) + page_tables(pids)


def hide(pids: list[int], kernel: int) -> bool:
    """Tells whether one of several processes keeps from others of its user what it has open: by PR_SET_DUMPABLE, or
    because its program cannot be read (prctl(2)).

    A guarded kernel's runner does so, and is not meant. No process of a cell's has fewer filters than the kernel.
    """
    return any(
        not os.access(f"/proc/{pid}/fd", os.R_OK) and _resident(pid) > 0 and _filters(pid) >= _filters(kernel)
        for pid in pids
    )


def _filters(pid: int) -> int:
    """Returns how many filters of system calls a process has."""
    lines = _read(f"/proc/{pid}/status").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(b"Seccomp_filters:")), 0)


def _resident(pid: int) -> int:
    """Returns the bytes of a process that are in memory, which is told of every process; 0 if it has ended."""
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def shared_memory() -> int:
    """Returns the bytes of memory that files take on this machine, of whatever process."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith(b"Shmem:"):
            return int(line.split()[1]) * 1024
    return 0


def written(pids: list[int]) -> int:
    """Returns the bytes that processes, and those they have waited for, have given to disks to keep."""
    lines = (line for pid in pids for line in _read(f"/proc/{pid}/io").splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"write_bytes:"))


def unlinked_files(pids: list[int], device: int) -> int:
    """Returns the bytes of files of a file system that processes have open, and that no name leads to any more."""
    held: dict[tuple[int, int], int] = {}
    for pid in pids:
        for fd in _descriptors(pid):
            try:
                info = os.stat(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if info.st_nlink == 0 and info.st_dev == device:
                held[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(held.values())


def _held_memory(pid: int) -> dict[tuple[int, int], int]:
    """Returns the files of memory that a process has open: memfd_create(2), shm_open(3), a tmpfs."""
    held = {}
    for fd in _descriptors(pid):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            if os.readlink(path).startswith(("/memfd:", "/dev/shm/", "/dev/zero")):
                info = os.stat(path)
                held[info.st_dev, info.st_ino] = info.st_blocks * 512
        except OSError:
            continue  # closed since, or not for us to see
    return held


def _private_memory(pid: int) -> dict[int, int]:
    """Returns what is in the file systems that a process has, and we have not, at the usual places for memory."""
    found = {}
    for place in ("/tmp", "/var/tmp", "/run", "/dev/shm"):
        theirs = f"/proc/{pid}/root{place}"
        try:
            device = os.stat(theirs).st_dev
            if os.path.exists(place) and device != os.stat(place).st_dev:
                info = os.statvfs(theirs)
                found[device] = (info.f_blocks - info.f_bfree) * info.f_frsize
        except OSError:
            continue  # not for us to see
    return found


def _descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def _children(pid: int, threads: int) -> list[int]:
    if threads == 1:
        return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for task in tasks for child in _read(f"/proc/{pid}/task/{task}/children").split()]


def _read(path: str) -> bytes:
    """Returns what a file of the system says; nothing if the process has ended, or is not for us to see."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts = []
    try:
        while part := os.read(fd, 65536):
            parts.append(part)
    except OSError:
        pass
    finally:
        os.close(fd)
    return b"".join(parts)
