"""Control groups that keep the limits of a kernel (cgroups(7)), where this process may make them: found out by trying.

A group is made beside or below the one that this process is in, so whatever holds for us holds for our kernels too. The
kernel joins it through a descriptor of its `cgroup.procs`; its keeper removes it when the kernel has ended, and hosts
do where the keeper could not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from kernelbox.host.process._process import Process, read_start_time
from kernelbox.usage import _group_usage as _groups
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# How the names of groups begin; nothing else is ever removed.
_PREFIX = "kernelbox-"

# Seconds that processes which were killed take to leave a group.
_PATIENCE = 2.0

# What keeps or counts each limit, by its name in the first version.
_COUNTED = "cpuacct"  # which every group of the second version does
_CONTROLLERS = {"memory": "memory", "processes": "pids", "cpu": _COUNTED}


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """A mounted hierarchy of groups, and the group in it that this process is in."""

    version: int
    controllers: frozenset[str]
    own: str


def make_groups(kernel_id: str, limits: Mapping[str, float]) -> list[str]:
    """Makes the groups that keep what they can of the limits; returns their paths, none where none may be made."""
    wanted = {_CONTROLLERS[name] for name in limits if name in _CONTROLLERS}
    name = f"{_PREFIX}{kernel_id}-{os.urandom(4).hex()}"
    made = []
    for hierarchy in sorted(_hierarchies() if wanted else (), key=lambda each: each.version):
        kept = hierarchy.controllers & wanted
        parents = ([hierarchy.own] if kept else []) if hierarchy.version == 1 else _parents(hierarchy.own, kept)
        group = next((group for parent in parents if (group := _make(f"{parent}/{name}", limits))), None)
        if group is not None:
            made.append(group)
            wanted -= kept
        if not wanted:
            break
    return made


def remove_groups(groups: Iterable[str]) -> None:
    """Ends what is left in the groups of a kernel that has ended, and removes them; most are gone by then."""
    for group in groups:
        if not os.path.basename(group).startswith(_PREFIX) or not os.path.isdir(group):
            continue
        deadline = time.monotonic() + _PATIENCE
        while (left := _groups.members(group)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(OSError):
                    Process(pid, read_start_time(pid) or 0).signal(signal.SIGKILL)
            time.sleep(0.005)
        with contextlib.suppress(OSError):
            os.rmdir(group)


def _make(group: str, limits: Mapping[str, float]) -> str:
    """Makes a group and writes the limits that it can keep; returns "" if this process may not."""
    try:
        os.mkdir(group)
    except OSError:
        return ""
    try:
        for file, text in _settings(group, limits):
            with open(f"{group}/{file}", "w") as opened:
                opened.write(text)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(group)
        return ""
    return group


def _settings(group: str, limits: Mapping[str, float]) -> list[tuple[str, str]]:
    """Returns what is to be written to the files that a group has, the swap space with the memory and after it."""
    memory, processes = f"{limits.get('memory', 0):.0f}", f"{limits.get('processes', 0):.0f}"
    files = []
    if "memory" in limits:
        files += [("memory.max", memory), ("memory.swap.max", "0")]
        files += [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)]
    if "processes" in limits:
        files.append(("pids.max", processes))
    return [(file, text) for file, text in files if os.path.exists(f"{group}/{file}")]


def _parents(own: str, wanted: frozenset[str]) -> list[str]:
    """Returns where a group of the second version with these controllers can be made.

    Beside our own: a group that has processes can have no groups with controllers below it. Below our own only if it is
    the root, for which that does not hold, or if none is needed.
    """
    wanted, found = wanted - {_COUNTED}, []
    for parent in (own, os.path.dirname(own)):
        switch = f"{parent}/cgroup.subtree_control"
        with contextlib.suppress(OSError):
            missing = wanted - _words(switch)
            if missing and wanted <= _words(f"{parent}/cgroup.controllers"):
                with open(switch, "w") as file:
                    file.write(" ".join(f"+{name}" for name in sorted(missing)))
            if wanted <= _words(switch) and os.access(f"{parent}/cgroup.procs", os.W_OK):
                found.append(parent)
    return found


def _hierarchies() -> list[_Hierarchy]:
    """Returns the hierarchies that are mounted, and where we are in them."""
    try:
        with open("/proc/self/cgroup") as file:
            places = [line.rstrip("\n").split(":", 2) for line in file]
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return []
    found = []
    for fields in mounts:
        (kind, _, options), root, point = fields[fields.index("-") + 1 :][:3], fields[3], fields[4]
        if kind not in ("cgroup", "cgroup2"):
            continue
        for _number, names, place in places:
            controllers = frozenset(names.split(",")) if names else frozenset[str]()
            fits = not names if kind == "cgroup2" else bool(controllers) and controllers <= set(options.split(","))
            if fits and (place + "/").startswith(root.rstrip("/") + "/"):
                own = (point + place[len(root.rstrip("/")) :]).rstrip("/")
                version = 2 if kind == "cgroup2" else 1
                if kind == "cgroup2":
                    controllers = frozenset({*_words(f"{own}/cgroup.controllers"), _COUNTED})
                found.append(_Hierarchy(version, controllers, own))
    return found


def _words(path: str) -> set[str]:
    try:
        with open(path) as file:
            return set(file.read().split())
    except OSError:
        return set()
