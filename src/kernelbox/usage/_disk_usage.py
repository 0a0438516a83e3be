"""What a directory holds, added up a part at a time: a keeper that adds it up has other things to do."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

# A file takes an inode and a name, however little is in it: what file systems give away at a time is counted.
LEAST_FILE = 4096

# Characters of a path below an open directory; a longer one is continued from a directory that is opened half-way. The
# system takes paths of up to 4,096 bytes (PATH_MAX), and a tree can be deeper.
_LONGEST = 900

# Directories that are kept open for that, one below the other: a tree that is deeper still is not looked through.
_MOST_OPEN = 32

# What a directory's owner needs to find what is in it.
_OPEN = stat.S_IRUSR | stat.S_IXUSR

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Walk:
    """Adds up what the files in a directory take on its file system; links are not followed, nor mounts entered.

    `closed` counts the directories that their owner, this user, has closed to themselves by their mode, and those that
    are too deep: whatever is in them is not found.
    """

    def __init__(self, path: str, dir_fd: int | None = None, *, but: int = 0) -> None:
        """Raises OSError if there is no such directory. `but` is the inode of one in it that does not count."""
        self.bytes = 0
        self.entries = 0
        self.closed = 0
        self._but = but
        self._top = _Anchor(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd))
        self._files = _walk(self._top, but)
        self._user = os.geteuid()
        self._linked: set[int] = set()

    def __repr__(self) -> str:
        return f"<Walk of {self.entries} entries so far>"

    def again(self) -> Walk:
        """Returns another walk through the same directory, whatever its name leads to by now."""
        return Walk(".", self._top.fd, but=self._but)

    @property
    def place(self) -> tuple[int, int]:
        """The file system that the directory is on, and what tells it from others there."""
        info = os.fstat(self._top.fd)
        return info.st_dev, info.st_ino

    @property
    def free(self) -> tuple[int, int]:
        """The bytes and the inodes that are left on the file system."""
        info = os.statvfs(self._top.fd)
        return info.f_bfree * info.f_frsize, info.f_ffree

    def step(self, most: int) -> bool:
        """Goes on with so many files; returns whether all have been counted."""
        for _ in range(most):
            found = next(self._files, None)
            if found is None:
                return True
            self._count(*found)
        return False

    def _count(self, info: os.stat_result, is_too_deep: bool) -> None:
        self.entries += 1
        self.closed += is_too_deep
        if stat.S_ISDIR(info.st_mode) and info.st_uid == self._user and info.st_mode & _OPEN != _OPEN:
            self.closed += self._user != 0  # nothing is closed to the superuser
        if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
            if info.st_ino in self._linked:
                return  # counted under another of its names
            self._linked.add(info.st_ino)
        self.bytes += max(info.st_blocks * 512, LEAST_FILE)


class _Anchor:
    """An open directory, closed when no path from it is left; `depth` is how many are open above it."""

    def __init__(self, fd: int, depth: int = 0) -> None:
        self.fd = fd
        self.depth = depth

    def __del__(self) -> None:
        os.close(self.fd)


def _walk(top: _Anchor, but: int) -> Iterator[tuple[os.stat_result, bool]]:
    """Yields what the system knows of every file below a directory and on the same file system, and whether it is a
    directory that is too deep to be looked through."""
    itself = os.fstat(top.fd)
    device = itself.st_dev
    yield itself, False  # it grows with the names in it
    waiting = [(top, ".")]
    while waiting:
        anchor, path = waiting.pop()
        try:
            here = _Anchor(os.open(path, _DIRECTORY, dir_fd=anchor.fd), anchor.depth + 1)
            entries = os.scandir(here.fd)
        except OSError:
            continue  # it is gone, or not for us to see
        if len(path) > _LONGEST:
            anchor, path = here, "."
        with entries:
            for entry in entries:
                try:
                    info = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if info.st_dev != device or info.st_ino == but:
                    continue
                is_directory, is_deep = stat.S_ISDIR(info.st_mode), anchor.depth >= _MOST_OPEN
                yield info, is_directory and is_deep
                if is_directory and not is_deep:
                    waiting.append((anchor, f"{path}/{entry.name}"))
