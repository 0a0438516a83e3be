"""Which files are kernelbox's own, no matter which path leads to them.

A path proves nothing: links, hard links, relative paths and `/proc/self/fd` lead to the same file. So directories are
known by their device and inode.
"""

from __future__ import annotations

from kernelbox.guest._stdlib import contextlib, os, stat
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._layout import (
    DEATH,
    INTENT,
    JUPYTER,
    LINK,
    LOG,
    PROFILE,
    QUEUE,
    RECORD,
    RUNNER,
    SOCKET,
    STATE,
    is_kernel_id,
)

keep_builtins(globals())

# As many links in a row as Linux follows (path_resolution(7)), and more levels than a path has room for.
_MOST_LINKS = 40
_MOST_LEVELS = 2048

# Where the open descriptors of this process are listed; each leads on, if it is a directory's.
_DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"

# What a kernel's directory holds.
_NAMES = frozenset({RECORD, DEATH, INTENT, STATE, LOG, SOCKET, RUNNER, JUPYTER, LINK, QUEUE})


class OwnFiles:
    """The runtime directory that a kernel lives in, with all kernels and templates beside it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._runtime = _identity(directory.rpartition("/")[0])
        self._way: frozenset[tuple[int, int] | None] = frozenset()

    def prepare(self) -> None:
        """Notes the way here, and makes the directory that cells may keep files in: they cannot under the guard."""
        self._way = _way_to(self._directory)
        with contextlib.suppress(OSError):
            os.mkdir(f"{self._directory}/{PROFILE}", 0o700)

    def hold(self, path: str) -> bool:
        """Tells whether a path leads into the runtime directory, but not to what cells may keep in it."""
        if _names_a_kernels_file(path):
            return True
        if is_kernel_id(path.rstrip("/").rpartition("/")[2]) and _identity(f"{path}/{SOCKET}") is not None:
            return True  # a kernel's directory, of this home or another
        place = _follow(path)
        if self._runtime is None or not _is_below(place, self._runtime):
            return False
        profile = _identity(f"{self._directory}/{PROFILE}")
        return profile is None or not _is_below(place, profile)

    def depend_on(self, path: str) -> bool:
        """Tells whether a path names a directory that the runtime directory is in, or a link on the way to it."""
        return _identity(path.rstrip("/") or "/", follow=False) in self._way

    def hold_from_descriptor(self, path: str) -> bool:
        """Tells the same about a relative path that starts at an open directory, which is unknown."""
        if path.startswith("/"):
            return False
        return any(self.hold(f"{_DESCRIPTORS}/{fd}/{path}") for fd in os.listdir(_DESCRIPTORS))


def _names_a_kernels_file(path: str) -> bool:
    """Decides by the names alone, if the path is relative: it may start at a descriptor, which is unknown."""
    parent, _, name = path.rpartition("/")
    if name not in _NAMES or not is_kernel_id(parent.rpartition("/")[2]):
        return False
    return not path.startswith("/") or _identity(f"{parent}/{SOCKET}") is not None


def _way_to(directory: str) -> frozenset[tuple[int, int] | None]:
    """Returns the directories and links that a path leads through, as it is written and as it is without links."""
    steps = {directory, os.path.realpath(directory)}
    for path in tuple(steps):
        while path := path.rpartition("/")[0]:
            steps.add(path)
    return frozenset(_identity(path, follow=False) for path in steps) - {None}


def _identity(path: str, *, follow: bool = True) -> tuple[int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=follow)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _follow(path: str) -> str:
    """Returns where a path leads: links at its end are followed here, those before it by the system."""
    for _ in range(_MOST_LINKS):
        try:
            target = os.readlink(path)
        except (OSError, ValueError):
            return path  # no link
        path = target if target.startswith("/") else f"{path.rpartition('/')[0] or '.'}/{target}"
    return path


def _is_below(path: str, directory: tuple[int, int]) -> bool:
    """Tells whether a path is this directory, or lies somewhere in it; what it names need not exist."""
    place, above = _identity(path), path
    if place is None or not stat.S_ISDIR(os.stat(path).st_mode):
        above = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        place = _identity(above)
    for _ in range(_MOST_LEVELS):
        if place is None or place == directory:
            return place is not None
        above += "/.."
        place, below = _identity(above), place
        if place == below:
            return False  # the root
    return False
