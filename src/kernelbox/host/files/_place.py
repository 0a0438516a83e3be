"""An open directory: everything in it is reached through its descriptor, and never through a link.

A path can come to mean another directory between two calls; a descriptor cannot. Names are single components. What
the system refuses is raised as it comes (FileNotFoundError, PermissionError …). What is there but cannot be trusted is
raised as StoreFailed, whose sentence says why.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from itertools import islice

from kernelbox.base._errors import StoreFailed
from kernelbox.host.files._tree import remove_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

# How the names of files end that are being written, and become visible under another name when they are complete.
UNFINISHED = ".new"

# O_NONBLOCK: a FIFO in the place of a file must not make us wait for its other end. Regular files ignore it.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# A file is written, a directory made or removed in milliseconds; one that is still half there after this was left by a
# crash.
_RUBBISH_AFTER = 60.0

# A name that cannot be made ours in this many attempts is being taken by another process each time.
_ATTEMPTS = 10


class Place:
    """A directory, held by its descriptor; `path` is where it was found, for messages. `with` closes it."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open(cls, path: str, *, private: bool = True, setting: str = "KERNELBOX_HOME") -> Self:
        """Opens a directory of ours that others cannot write to and, if it is to be private, cannot look into.

        The last component of the path must not be a link; the others may be. `setting` is what another directory can
        be chosen with, for the sentence of StoreFailed.
        """
        return cls(_open_directory(path, None, path, private, setting), path)

    @classmethod
    def open_any(cls, path: str) -> Self:
        """Opens a directory of any owner and mode, because the user has named it: /tmp, the folder of a registry."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)

    def __repr__(self) -> str:
        return f"<Place {self.path!r}{' closed' if self.fd < 0 else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the descriptor back; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    # -- directories -----------------------------------------------------------------------------------------

    def enter(self, name: str, *, make: bool = False) -> Place:
        """Opens a private directory of ours in this one; with `make`, one that is missing is made first."""
        if make:
            with contextlib.suppress(FileExistsError):
                self.make(name)
        path = self.path_of(name)
        return Place(_open_directory(name, self.fd, path, True, "KERNELBOX_HOME"), path)

    def make(self, name: str) -> None:
        """Makes a private directory in this one; raises FileExistsError if anything has the name."""
        os.mkdir(name, 0o700, dir_fd=self.fd)

    def path_of(self, name: str) -> str:
        """Returns where an entry was when this directory was opened, for messages."""
        return f"{self.path}/{name}"

    def reach(self, name: str) -> str:
        """Returns a path for a socket's address: short, and through the descriptor, where the system has /proc."""
        return f"/proc/self/fd/{self.fd}/{name}" if os.path.isdir("/proc/self/fd") else self.path_of(name)

    def listdir(self, most: int | None = None) -> list[str]:
        """Returns the names of the entries, or of so many of them."""
        if most is None:
            return os.listdir(self.fd)
        with os.scandir(self.fd) as entries:
            return [entry.name for entry in islice(entries, most)]

    def stat(self, name: str) -> os.stat_result:
        """Returns what the system knows of an entry; of a link, what it knows of the link itself."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        """Tells whether anything has the name, even if it is a link that leads nowhere."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    # -- files -----------------------------------------------------------------------------------------------

    def read(self, name: str, limit: int) -> bytes:
        """Returns the bytes of a regular file of ours, of which there must not be more than `limit`."""
        fd, info = self._open_file(name, os.O_RDONLY)
        try:
            if info.st_size <= limit:
                return os.read(fd, info.st_size)
        finally:
            os.close(fd)
        raise StoreFailed(f"{self.path_of(name)!r} has more than the {limit:,} bytes that it may have, and is not read")

    def head(self, name: str, limit: int) -> bytes:
        """Returns the first bytes of a regular file of ours, at most `limit`."""
        fd, _ = self._open_file(name, os.O_RDONLY)
        try:
            return os.read(fd, limit)
        finally:
            os.close(fd)

    def tail(self, name: str, limit: int) -> bytes:
        """Returns the last bytes of a regular file of ours, at most `limit`."""
        fd, info = self._open_file(name, os.O_RDONLY)
        try:
            return os.pread(fd, limit, max(0, info.st_size - limit))
        finally:
            os.close(fd)

    def open_for_reading(self, name: str) -> int:
        """Returns a descriptor of a regular file of ours."""
        return self._open_file(name, os.O_RDONLY)[0]

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file so that a reader, or a crash, finds the old bytes or the new, never a part.

        A link that has the name is replaced itself.
        """
        new = self._write_beside(name, data)
        try:
            self.rename(new, name)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(new)
            raise

    def add(self, name: str, data: bytes) -> bool:
        """Writes a file that must not be there yet, whole or not at all; False if anything has the name."""
        new = self._write_beside(name, data)
        try:
            os.link(new, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except FileExistsError:
            return False
        finally:
            self.remove(new)
        return True

    def create(self, name: str) -> int:
        """Returns a descriptor of a new, empty file; raises FileExistsError if anything has the name."""
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600, dir_fd=self.fd)

    def open_existing(self, name: str) -> int:
        """Returns a descriptor to write to a regular file of ours that is there, and has no other name."""
        fd, info = self._open_file(name, os.O_RDWR)
        if info.st_nlink <= 1:
            return fd
        os.close(fd)
        raise StoreFailed(f"{self.path_of(name)!r} has another name as well, and is not used")

    def open_for_writing(self, name: str, flags: int = 0) -> int:
        """Returns a descriptor of a file to read and write, which is made if it is missing; O_APPEND can be a flag.

        Anything that is not a regular file of ours with this one name is removed first: what is written must not
        arrive anywhere else.
        """
        for _ in range(_ATTEMPTS):
            try:
                fd, info = self._open_file(name, os.O_RDWR | os.O_CREAT | flags)
                if info.st_nlink <= 1:  # 0 if it has been removed since, which can happen at any time
                    return fd
                os.close(fd)
            except PermissionError:
                if not self.exists(name):
                    raise
            except StoreFailed:
                pass
            self.remove_tree(name)
        raise StoreFailed(f"{self.path_of(name)!r} is in the way of a file of kernelbox; remove it")

    def rename(self, old: str, new: str) -> None:
        """Gives an entry another name, in place of what has it; a link is renamed itself."""
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Removes an entry that is not a directory; a link is removed itself."""
        os.unlink(name, dir_fd=self.fd)

    def remove_tree(self, name: str) -> None:
        """Removes an entry and all that is below it, nothing through a link. What cannot be removed is left."""
        try:
            self.remove(name)
        except (IsADirectoryError, PermissionError):  # Linux says the one of a directory, POSIX the other
            with contextlib.suppress(OSError):
                remove_directory(name, self.fd)
        except OSError:
            pass

    def remove_rubbish(self, *endings: str, of: str = "") -> None:
        """Removes what crashes have left half written, or under names that end so; all of it, or `of` one name."""
        for name in self.listdir():
            if name.startswith(of) and name.endswith((UNFINISHED, *endings)) and self.is_rubbish(name):
                self.remove_tree(name)

    def is_rubbish(self, name: str) -> bool:
        """Tells whether an entry that is only there for a moment has been there for too long."""
        try:
            return time.time() - self.stat(name).st_mtime > _RUBBISH_AFTER
        except FileNotFoundError:
            return False  # another process has been quicker

    def _open_file(self, name: str, flags: int) -> tuple[int, os.stat_result]:
        """Opens a regular file of ours; raises StoreFailed for anything else."""
        try:
            fd = os.open(name, flags | _SAFELY, 0o600, dir_fd=self.fd)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise StoreFailed(f"{self.path_of(name)!r} is a link, which is not followed") from exc
            if exc.errno in (errno.ENXIO, errno.EISDIR):  # a socket or a FIFO; a directory
                raise StoreFailed(f"{self.path_of(name)!r} is not a regular file, and is not used") from exc
            raise
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
            return fd, info
        os.close(fd)
        wrong = "belongs to another user" if stat.S_ISREG(info.st_mode) else "is not a regular file"
        raise StoreFailed(f"{self.path_of(name)!r} {wrong}, and is not used")

    def _write_beside(self, name: str, data: bytes) -> str:
        """Writes a file under a name that no other process has, and returns that name."""
        new = f"{name}.{os.getpid()}-{os.urandom(3).hex()}{UNFINISHED}"
        fd = self.create(new)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(new)
            raise
        finally:
            os.close(fd)
        return new


def _open_directory(name: str, dir_fd: int | None, path: str, private: bool, setting: str) -> int:
    """Opens a directory of ours; raises StoreFailed for one of another user, one that is open, and for a link."""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, dir_fd):
            advice = f"set {setting} to the directory itself"
            raise StoreFailed(f"{path!r} is a link, which is not followed; {advice}") from exc
        raise
    info = os.fstat(fd)
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid == os.geteuid() and not mode & (0o077 if private else 0o022):
        return fd
    os.close(fd)
    advice = f"set {setting} to one of your own"
    if info.st_uid != os.geteuid():
        wrong = f"belongs to another user (uid {info.st_uid}, we are uid {os.geteuid()})"
    else:
        wrong = f"is open to other users (its mode is {mode:o})"
        advice += f", or close it: chmod {'go-rwx' if private else 'go-w'}"
    raise StoreFailed(f"{path!r} {wrong}; {advice}")


def _is_link(name: str, dir_fd: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False
