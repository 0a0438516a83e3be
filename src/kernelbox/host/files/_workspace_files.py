"""The files of a workspace, opened by descriptors from its directory: nothing outside, and no links."""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import stat

from kernelbox.base._errors import InvalidInput
from kernelbox.host.files._place import write_all
from kernelbox.host.files._user_files import create_new, open_directory
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.sandbox._sandbox_config import SandboxConfig

# O_NONBLOCK: opening a FIFO must not wait for its other end.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# The system's limit for a whole path. Step by step, a path could create any number of directories.
_LONGEST_PATH = 4095

# Names that are not shown: kernelbox's own files, and secrets.
_WITHHELD = (".kernelbox", ".env")

_SENTENCES = {
    errno.ENOENT: "there is no such file",
    errno.ELOOP: "it is a link or goes through one, and links are not followed",
    errno.ENOTDIR: "a part of it is a link or a file, where a directory is needed",
    errno.EISDIR: "it is a directory",
    errno.ENXIO: "it is not a regular file",
    errno.EACCES: "permission denied",
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "the disk is read-only",
}


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One entry of a directory; `kind` is file, directory, link or other."""

    name: str
    kind: str
    size: int


class Arriving:
    """A file that arrives in pieces."""

    def __init__(self, fd: int, *, is_new: bool) -> None:
        self.is_new = is_new
        self._fd = fd

    def add(self, data: bytes) -> None:
        write_all(self._fd, data)


class Workspace:
    """A directory and everything below it. Paths are relative to it, or absolute and inside it.

    With the sandbox of its kernels, a file can be read or written only if they could do so.
    """

    def __init__(self, root: str, sandbox: SandboxConfig | None = None) -> None:
        self.root = os.path.realpath(root)
        self._sandbox = sandbox

    def entries(self, path: str, most: int) -> tuple[list[DirectoryEntry], int]:
        """Returns the first entries of a directory by name, and the number of all."""
        parts = self._parts(path)
        self._check_rules(path, parts)
        with self._refusing(path), self._directory(parts) as fd:
            names = _Names(fd)
            found = [_describe(name, fd) for name in heapq.nsmallest(most, names)]
        return [entry for entry in found if entry is not None], names.count

    def read(self, path: str, start: int = 0, length: int | None = None) -> tuple[bytes, int]:
        """Returns bytes of a file from `start`, and its size."""
        *folders, name = self._file_parts(path)
        self._check_rules(path, [*folders, name])
        with self._refusing(path), self._directory(folders) as directory:
            fd = os.open(name, os.O_RDONLY | _FILE, dir_fd=directory)
            try:
                size = _require_regular(os.fstat(fd)).st_size
                return os.pread(fd, size if length is None else length, min(start, size)), size
            finally:
                os.close(fd)

    def open(self, path: str) -> tuple[int, int] | None:
        """Returns a descriptor of a file and its size; None for a directory."""
        parts = self._parts(path)
        if not parts:
            return None
        self._check_rules(path, parts)
        with self._refusing(path), self._directory(parts[:-1]) as directory:
            fd = os.open(parts[-1], os.O_RDONLY | _FILE, dir_fd=directory)
            try:
                return fd, _require_regular(os.fstat(fd)).st_size
            except IsADirectoryError:
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise

    def write(self, path: str, data: bytes) -> bool:
        """Writes a file completely or not at all, and makes the directories it needs; returns whether it is new."""
        with self.writing(path) as arriving:
            arriving.add(data)
        return arriving.is_new

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[Arriving]:
        """Opens a file that arrives in pieces. It appears, complete, when the block ends without an exception."""
        *folders, name = self._file_parts(path)
        self._check_rules(path, [*folders, name], write=True)
        with self._refusing(path), self._directory(folders, make=True) as directory:
            mode = _mode_of(name, directory)
            beside = f".{name[:100]}.{os.urandom(6).hex()}"
            fd = create_new(beside, directory, mode=mode)
            try:
                yield Arriving(fd, is_new=mode is None)
                os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(beside, dir_fd=directory)
                raise
            finally:
                os.close(fd)

    def _parts(self, path: str) -> list[str]:
        """Returns the names that lead from the root to a path; raises InvalidInput if it leads outside."""
        inside = path
        if len(path) > _LONGEST_PATH:
            raise InvalidInput("the path", path, f"use one of at most {_LONGEST_PATH:,} characters")
        if path.startswith("/"):
            if path.rstrip("/") != self.root and not path.startswith(self.root.rstrip("/") + "/"):
                raise InvalidInput("the path", path, "use one inside the workspace, relative to it")
            inside = path[len(self.root) :]
        parts = [part for part in inside.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in path:
            raise InvalidInput("the path", path, "use one inside the workspace, without ..")
        if any(part in _WITHHELD for part in parts):
            raise InvalidInput("the path", path, f"{' and '.join(_WITHHELD)} are not shown")
        return parts

    def _file_parts(self, path: str) -> list[str]:
        parts = self._parts(path)
        if not parts or path.endswith("/"):
            raise InvalidInput("the path", path, "use the path of a file")
        return parts

    def _check_rules(self, path: str, parts: list[str], *, write: bool = False) -> None:
        """Raises InvalidInput if a cell in the sandbox could not do this."""
        if self._sandbox is None:
            return
        from kernelbox.sandbox._native import Surroundings, find_rules
        from kernelbox.sandbox._path_rules import state_of

        state = state_of(os.path.join(self.root, *parts), find_rules(self._sandbox, Surroundings(self.root)))
        if state == "hide":
            raise InvalidInput("the path", path, "the rules of the sandbox hide it")
        if write and state != "write":
            raise InvalidInput("the path", path, "the rules of the sandbox do not allow writing to it")

    @contextlib.contextmanager
    def _directory(self, parts: list[str], *, make: bool = False) -> Iterator[int]:
        fd = open_directory(self.root, parts, make=make)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _refusing(self, path: str) -> Iterator[None]:
        """Turns the system's errors into InvalidInput."""
        try:
            yield
        except OSError as exc:
            reason = _SENTENCES.get(exc.errno or 0, exc.strerror or str(exc))
            raise InvalidInput("the path", path, reason) from exc
        except UnicodeEncodeError as exc:
            raise InvalidInput("the path", path, "it has characters that are not allowed in file names") from exc


class _Names:
    """The visible names in a directory, one at a time, since a cell can make millions of files."""

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.name not in _WITHHELD:
                    self.count += 1
                    yield entry.name


def _describe(name: str, directory: int) -> DirectoryEntry | None:
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None  # it has gone since
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    kind = next((kind for is_kind, kind in kinds if is_kind(info.st_mode)), "other")
    return DirectoryEntry(
        name.encode("utf-8", "backslashreplace").decode(), kind, info.st_size if kind == "file" else 0
    )


def _require_regular(info: os.stat_result) -> os.stat_result:
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, "it is a link")
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ENXIO, "it is not a regular file")
    return info


def _mode_of(name: str, directory: int) -> int | None:
    """Returns the mode of the file to replace, if there is one; raises OSError if it is not a regular file."""
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(_require_regular(info).st_mode)
