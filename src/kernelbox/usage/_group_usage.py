"""What a control group of either version has used (cgroups(7)); each function tries the files of both."""

from __future__ import annotations

import os


def members(group: str) -> list[int]:
    """Returns the processes in a group."""
    return [int(pid) for pid in _read(group, "cgroup.procs").split() if pid != b"0"]


def memory(group: str) -> int | None:
    """Returns the memory of a group without cached files, which the system can reclaim; None if it is not counted."""
    shown = _table(group, "memory.stat")
    if b"total_rss" in shown:
        return shown[b"total_rss"] + shown.get(b"total_shmem", 0)
    return shown[b"anon"] + shown.get(b"shmem", 0) if b"anon" in shown else None


def peak(group: str) -> int | None:
    """Returns the most bytes that a group has used at once."""
    return _number(group, "memory.peak", "memory.max_usage_in_bytes")


def oom_kills(group: str) -> int | None:
    """Returns how many processes of a group the system has killed because the group had used up its memory."""
    shown = _table(group, "memory.events") or _table(group, "memory.oom_control")
    return shown.get(b"oom_kill")


def cpu_seconds(group: str) -> float | None:
    """Returns the processor time of all processes that are, or were, in a group."""
    used = _table(group, "cpu.stat").get(b"usage_usec")
    if used is not None:
        return used / 1e6
    nanoseconds = _number(group, "cpuacct.usage")
    return None if nanoseconds is None else nanoseconds / 1e9


def limits(group: str) -> set[str]:
    """Returns which limits a group can enforce."""
    files = {"memory": ("memory.max", "memory.limit_in_bytes"), "processes": ("pids.max",)}
    return {name for name, known in files.items() if any(os.path.exists(f"{group}/{file}") for file in known)}


def _number(group: str, *files: str) -> int | None:
    for file in files:
        text = _read(group, file).strip()
        if text.isdigit():
            return int(text)
    return None


def _table(group: str, file: str) -> dict[bytes, int]:
    rows = (line.split() for line in _read(group, file).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _read(group: str, file: str) -> bytes:
    try:
        with open(f"{group}/{file}", "rb") as opened:
            return opened.read()
    except OSError:
        return b""
