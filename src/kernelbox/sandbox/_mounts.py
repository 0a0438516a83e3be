"""Other paths to the same files: a directory can be mounted more than once, and must be hidden at every mount."""

from __future__ import annotations

import os
import re
from collections import Counter

from kernelbox.sandbox._path_rules import is_below, parents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    # Keyed by mount point: the device, which directory of it is mounted there, and the type of file system.
    Mounts = dict[str, tuple[str, str, str]]

# How spaces and some other characters are escaped in a path (proc_pid_mountinfo(5)).
_ESCAPED = re.compile(r"\\([0-7]{3})")


def read_mounts(mountinfo: str = "/proc/self/mountinfo") -> Mounts:
    """Returns the mounts. Where several share a mount point, the last one counts."""
    mounts = {}
    with open(mountinfo, errors="surrogateescape") as file:
        for line in file:
            _, _, device, root, place, rest = line.split(" ", 5)
            mounts[_unescape(place)] = device, _unescape(root), rest.partition(" - ")[2].partition(" ")[0]
    return mounts


def find_processes(mounts: Mounts) -> list[str]:
    """Returns every mounted proc file system except /proc itself, such as the one of a chroot."""
    found = (place for place, (_, _, kind) in mounts.items() if kind == "proc")
    return [place for place in found if place != "/proc" and not is_below(place, "/proc")]


def find_twins(paths: Iterable[str], mounts: Mounts) -> set[str]:
    """Returns the other paths that lead to the same files as these real paths, or to a part of them."""
    counts = Counter(device for device, _, _ in mounts.values())
    found: set[str] = set()
    for path in paths:
        point = next((place for place in (path, *parents(path)) if place in mounts), "")
        device, root, _ = mounts.get(point, ("", "", ""))
        if counts[device] > 1:
            inside = _join(root, os.path.relpath(path, point))
            others = ((place, start) for place, (on, start, _) in mounts.items() if on == device and place != point)
            found.update(twin for place, start in others if (twin := _twin(path, inside, place, start)))
    return found


def _twin(path: str, inside: str, place: str, start: str) -> str:
    """Returns where another mount of the same file system shows a path or a part of it; "" if it shows neither.

    `inside` is the path within the file system. `start` is the directory of the file system mounted at `place`.
    """
    if is_below(start, inside):
        return "" if is_below(place, path) else place
    if inside != start and not is_below(inside, start):
        return ""
    twin = _join(place, os.path.relpath(inside, start))
    try:
        return twin if os.path.samestat(os.lstat(twin), os.lstat(path)) else ""  # if not, another mount covers it
    except OSError:
        return ""


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text) if "\\" in text else text


def _join(start: str, relative: str) -> str:
    return start if relative == "." else f"{start.rstrip('/')}/{relative}"
