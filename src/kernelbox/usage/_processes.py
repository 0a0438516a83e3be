"""What a process and its descendants use, from /proc (proc(5)); and when a process began, on systems without /proc."""

from __future__ import annotations

import itertools
import math
import os
import zlib

# Only smaps_rollup has the exact memory, but reading it waits for a process that is just forking, and takes longer the
# more memory the process has. At most this many processes are measured, half of them the largest; others are estimated.
_MOST_ASKED = 64

# At most this many open files are looked at, which takes a tenth of a second or two, and at most this many bytes of a
# process's mappings are read.
_MOST_OPEN = 20_000
_MOST_READ = 4_000_000

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# The lines of smaps_rollup that count: not mapped files, whose memory the system can reclaim.
_TAKEN = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")

# Means every inode of a device.
_ANY = 0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Tree:
    """Processes and their descendants, as they were at one moment.

    `resident` counts shared memory once for each process. `cpu` has the seconds of live processes by pid; `waited` are
    those of ended processes that have been waited for.
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
        """The processor time of live processes and of those that were waited for."""
        return sum(self.cpu.values()) + self.waited


def look_at(*roots: int, most_tasks: float = 0) -> Tree:
    """Returns processes and their descendants; with `most_tasks`, stops as soon as there are more tasks than that."""
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


def beside_resident(pids: list[int]) -> int:
    """Returns the memory of processes that is swapped out, and that of their page tables."""
    return _add_up(pids, lambda pid: _status(pid, b"VmSwap:", b"VmPTE:"))


def _status(pid: int, *names: bytes) -> int:
    told = _amounts(f"/proc/{pid}/status")
    return sum(told.get(name, 0) for name in names)


def _add_up(pids: list[int], ask: Callable[[int], int]) -> int:
    """Returns the sum of `ask` over processes; if they are many, over the largest and a sample of the others."""
    if len(pids) <= _MOST_ASKED:
        return sum(map(ask, pids))
    ordered, half = sorted(pids, key=_resident, reverse=True), _MOST_ASKED // 2
    most, others = ordered[:half], ordered[half:]
    some = others[:: len(others) // half + 1]
    return sum(map(ask, most)) + sum(map(ask, some)) * len(others) // len(some)


def exact_memory(pids: list[int], kernel: int) -> int:
    """Returns the memory that only these processes use, each page counted once, with the shared memory they hold open.

    Files in memory that no process has open or mapped count only in file systems that belong to the kernel alone, as in
    a sandbox. The kernel is one of the processes.
    """
    held: dict[tuple[int, int], int] = {}
    for path in _open_files(pids):
        held |= _held_memory(path)
    if pids:
        private = _private_memory(kernel)
        held = {inode: amount for inode, amount in held.items() if inode[0] not in private}
        held |= {(device, _ANY): amount for device, amount in private.items()}
    mapped = _add_up(pids, lambda pid: _mapped_memory(pid, kernel, held))
    return mapped + sum(held.values()) + _add_up(pids, lambda pid: _status(pid, b"VmPTE:"))


class CopiedMemory:
    """The memory of a process that was forked, or has forked: `private` bytes that it shares with no other process.

    `anonymous` are all bytes that belong to no file, and `share` is the process's part of them.
    """

    __slots__ = ("anonymous", "private", "share")

    def __init__(self, pid: int) -> None:
        """To read it, the system looks at each page. All are 0 if the process has ended."""
        told = _amounts(f"/proc/{pid}/smaps_rollup")
        self.private = told.get(b"Private_Clean:", 0) + told.get(b"Private_Dirty:", 0)
        self.anonymous = told.get(b"Anonymous:", 0) + told.get(b"Swap:", 0)
        self.share = told.get(b"Pss_Anon:", 0) + told.get(b"SwapPss:", 0)


def anonymous_bytes(pid: int) -> int:
    """Returns the memory of a process that belongs to no file, shared or not; 0 if it has ended. It is quick."""
    fields = _read(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * _PAGE if fields else 0


def _mapped_memory(pid: int, kernel: int, held: Mapping[tuple[int, int], int]) -> int:
    """Returns the memory that a process has mapped, with its share of shared pages, without the files in `held`."""
    told = _amounts(f"/proc/{pid}/smaps_rollup")
    if not told:
        return _resident(pid) if hide([pid], kernel) else 0
    again = _mapped_of(pid, held) if held and told.get(b"Pss_Shmem:") else 0
    return max(0, sum(told.get(name, 0) for name in _TAKEN) - again)


def _mapped_of(pid: int, held: Mapping[tuple[int, int], int]) -> int:
    """Returns how much of the files in `held` a process has mapped, with its share of shared pages."""
    found, is_held = 0, False
    for line in _read(f"/proc/{pid}/smaps", _MOST_READ).splitlines()[:-1]:  # the last may be cut
        first, *rest = line.split()
        if not first.endswith(b":"):  # a mapping: its addresses, permissions, offset, device and inode
            device = os.makedev(*(int(number, 16) for number in rest[2].split(b":")))
            is_held = (device, int(rest[3])) in held or (device, _ANY) in held
        elif is_held and first in (b"Pss:", b"Anonymous:"):  # pages written in a private mapping are not the file's
            found += int(rest[0]) * (1024 if first == b"Pss:" else -1024)
    return found


def hide(pids: list[int], kernel: int) -> bool:
    """Tells whether any of these processes hides its open files from its user: by PR_SET_DUMPABLE, or because its
    program cannot be read (prctl(2)), or whether they have more open files than are looked at.

    The runner of a guarded kernel hides them too but is not counted: it has fewer filters than the kernel, and a cell's
    processes never do.
    """
    return sum(1 for _ in _open_files(pids)) >= _MOST_OPEN or any(
        not os.access(f"/proc/{pid}/fd", os.R_OK) and _resident(pid) > 0 and _filters(pid) >= _filters(kernel)
        for pid in pids
    )


def _filters(pid: int) -> int:
    """Returns how many seccomp filters a process has."""
    lines = _read(f"/proc/{pid}/status").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(b"Seccomp_filters:")), 0)


def _resident(pid: int) -> int:
    """Returns the resident memory of a process, which is readable for every process; 0 if it has ended."""
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def shared_memory() -> int:
    """Returns the memory that files in memory take on this machine, for all processes."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith(b"Shmem:"):
            return int(line.split()[1]) * 1024
    return 0


def written(pids: list[int]) -> int:
    """Returns the bytes that processes, and children they have waited for, have written to disks."""
    lines = (line for pid in pids for line in _read(f"/proc/{pid}/io").splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"write_bytes:"))


def unlinked_files(pids: list[int], device: int) -> int:
    """Returns the size of open files on a device that have been unlinked."""
    held: dict[tuple[int, int], int] = {}
    for path in _open_files(pids):
        try:
            info = os.stat(path)
        except OSError:
            continue
        if info.st_nlink == 0 and info.st_dev == device:
            held[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(held.values())


def _held_memory(path: str) -> dict[tuple[int, int], int]:
    """Returns the size of an open file in memory by device and inode: memfd_create(2), shm_open(3), a tmpfs."""
    try:
        if os.readlink(path).startswith(("/memfd:", "/dev/shm/", "/dev/zero")):
            info = os.stat(path)
            return {(info.st_dev, info.st_ino): info.st_blocks * 512}
    except OSError:
        pass  # closed meanwhile, or access is denied
    return {}


def _private_memory(pid: int) -> dict[int, int]:
    """Returns the used bytes of file systems at the usual tmpfs paths that a process has mounted and we have not."""
    found = {}
    for place in ("/tmp", "/var/tmp", "/run", "/dev/shm"):
        theirs = f"/proc/{pid}/root{place}"
        try:
            device = os.stat(theirs).st_dev
            if os.path.exists(place) and device != os.stat(place).st_dev:
                info = os.statvfs(theirs)
                found[device] = (info.f_blocks - info.f_bfree) * info.f_frsize
        except OSError:
            continue  # access is denied
    return found


def _open_files(pids: list[int]) -> Iterator[str]:
    """Yields the paths of the open files of processes, up to _MOST_OPEN."""
    return itertools.islice((path for pid in pids for path in _descriptors(pid)), _MOST_OPEN)


def _descriptors(pid: int) -> Iterator[str]:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                yield entry.path
    except OSError:
        return  # it has ended, or access is denied


def _amounts(path: str) -> dict[bytes, int]:
    """Returns the amounts in a /proc file by name, which it has in kilobytes, as bytes."""
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) * 1024 for row in rows if row[2:] == [b"kB"]}


def _children(pid: int, threads: int) -> list[int]:
    if threads == 1:
        return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for task in tasks for child in _read(f"/proc/{pid}/task/{task}/children").split()]


def _read(path: str, most: float = math.inf) -> bytes:
    """Returns about `most` bytes of a /proc file; nothing if the process has ended or access is denied."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts: list[bytes] = []
    try:
        while sum(map(len, parts)) < most and (part := os.read(fd, 65536)):
            parts.append(part)
    except OSError:
        pass
    finally:
        os.close(fd)
    return b"".join(parts)


def ask_start_time(pid: int) -> int | None:
    """Returns a number that identifies when a process began, from ps(1); None if there is none, or only a zombie.

    For systems without /proc. Host and guest must get the same number.
    """
    import subprocess  # most systems have /proc

    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    # ps writes the time in the caller's zone and language.
    env = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
    answer = subprocess.run(command, capture_output=True, check=False, env=env)
    state, _, started = answer.stdout.strip().partition(b" ")
    return None if not started or state.startswith(b"Z") else zlib.crc32(started.strip())
