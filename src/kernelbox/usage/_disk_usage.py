"""The size of a directory, added up in small steps, because the keeper that does it has other work too."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn, SupportsIndex

# The least that a file counts: even an empty one takes an inode and a name. This is a usual block size.
LEAST_FILE = 4096

# Characters of a path below an open directory; for a longer one, a directory half-way is opened. The system accepts
# paths of up to 4,096 bytes (PATH_MAX), and a tree can be deeper.
_LONGEST = 900

# Directories that are open for that, one below the other. A deeper tree is not counted.
_MOST_OPEN = 32

# The permissions that a directory's owner needs to list it and to look at its entries.
_OPEN = stat.S_IRUSR | stat.S_IXUSR

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Walk:
    """Adds up what the files in a directory take on its file system, without following links or entering mounts.

    `closed` counts the directories whose contents are not found: this user owns them but their mode forbids access, or
    they are too deep.
    """

    def __init__(self, path: str, dir_fd: int | None = None, *, but: int = 0) -> None:
        """Raises OSError if there is no such directory. `but` is the inode of a directory in it that does not count."""
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
        """Returns another walk through the same directory, even if its name leads elsewhere by now."""
        return Walk(".", self._top.fd, but=self._but)

    @property
    def place(self) -> tuple[int, int]:
        """The device and the inode of the directory."""
        info = os.fstat(self._top.fd)
        return info.st_dev, info.st_ino

    @property
    def free(self) -> tuple[int, int]:
        """The bytes and the inodes that are left on the file system."""
        info = os.statvfs(self._top.fd)
        return info.f_bfree * info.f_frsize, info.f_ffree

    def step(self, most: int) -> bool:
        """Counts at most `most` more files; returns whether all have been counted."""
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
                return  # already counted under another name
            self._linked.add(info.st_ino)
        self.bytes += max(info.st_blocks * 512, LEAST_FILE)


class _Anchor:
    """An open directory, closed when nothing refers to it any more; `depth` is how many are open above it."""

    def __init__(self, fd: int, depth: int = 0) -> None:
        self.fd = fd
        self.depth = depth

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an open directory cannot be copied: each copy would close it")

    def __del__(self) -> None:
        os.close(self.fd)


def _walk(top: _Anchor, but: int) -> Iterator[tuple[os.stat_result, bool]]:
    """Yields the status of every file below a directory on the same file system, and whether it is a directory that is
    too deep to be entered."""
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
            continue  # it is gone, or access is denied
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
