"""Control groups that enforce the limits of a kernel (cgroups(7)), if this process may make them; it tries.

A group is made beside or below this process's own group, so limits of the host also apply to its kernels. The kernel
joins the group through a descriptor of its `cgroup.procs`. The keeper removes the group when the kernel has ended, or a
host does if the keeper could not.
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

# Names of groups begin with this. No other group is ever removed.
_PREFIX = "kernelbox-"

# Version 1 counts the buffers of TCP apart from other memory: they may have this part of the limit on top of it.
_SHARE_OF_BUFFERS = 8

# How many seconds killed processes take to leave a group.
_PATIENCE = 2.0

# The controller that enforces or counts each limit, by its name in cgroups v1.
_COUNTED = "cpuacct"  # in v2 every group counts this
_CONTROLLERS = {"memory": "memory", "processes": "pids", "cpu": _COUNTED}


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """A mounted hierarchy of groups, and this process's own group in it."""

    version: int
    controllers: frozenset[str]
    own: str


def make_groups(kernel_id: str, limits: Mapping[str, float]) -> list[str]:
    """Makes groups that enforce as many limits as they can; returns their paths, none if this process may not."""
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
    """Kills what is left in the groups of a kernel that has ended, and removes them; most are already gone."""
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
    """Makes a group and writes its limits; returns "" if this process may not."""
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
    """Returns the files of a group to write, and their content. Swap is limited together with memory, and after it."""
    memory, processes = f"{limits.get('memory', 0):.0f}", f"{limits.get('processes', 0):.0f}"
    files = []
    if "memory" in limits:
        files += [("memory.max", memory), ("memory.swap.max", "0")]
        files += [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)]
        files.append(("memory.kmem.tcp.limit_in_bytes", f"{limits['memory'] / _SHARE_OF_BUFFERS:.0f}"))
    if "processes" in limits:
        files.append(("pids.max", processes))
    return [(file, text) for file, text in files if os.path.exists(f"{group}/{file}")]


def _parents(own: str, wanted: frozenset[str]) -> list[str]:
    """Returns where a v2 group with these controllers can be made.

    That is beside our own group, because a group with processes cannot have groups with controllers below it. It is
    below our own only if that is the root, or if no controllers are needed.
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
    """Returns the mounted hierarchies, with our own group in each."""
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
