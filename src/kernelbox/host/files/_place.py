"""An open directory. Everything in it is opened through its descriptor, and links are never followed.

A path can lead to another directory from one call to the next; a descriptor cannot. Names are single components. Errors
of the system are raised as they are (FileNotFoundError, PermissionError …). StoreFailed means that something exists but
cannot be trusted, and says why.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from itertools import islice

from kernelbox.base._errors import StoreFailed
from kernelbox.base._light_stdlib import suppress
from kernelbox.base._unique_objects import Owner
from kernelbox.host.files._tree import remove_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

# The suffix of files that are being written. They get their real name when they are complete.
UNFINISHED = ".new"

# O_NONBLOCK: opening a FIFO must not wait for its other end. Regular files ignore it.
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Writing a file, or making or removing a directory, takes milliseconds. What is older and unfinished is from a crash.
_RUBBISH_AFTER = 60.0

# How often to replace a file that something else keeps putting in the way.
_ATTEMPTS = 10


class Place(Owner):
    """An open directory; `path` is where it was found, for messages. `with` closes it."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open(cls, path: str, *, private: bool = True, setting: str = "KERNELBOX_HOME") -> Self:
        """Opens a directory that this user owns and others cannot write to or, if `private`, even look into.

        Only the last component of the path must not be a link. `setting` is the variable that chooses another
        directory, for the message of StoreFailed.
        """
        return cls(_open_directory(path, None, path, private, setting), path)

    @classmethod
    def open_any(cls, path: str) -> Self:
        """Opens a directory of any owner and mode, because the user has chosen it: /tmp, the folder of a registry."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)

    def __repr__(self) -> str:
        return f"<Place {self.path!r}{' closed' if self.fd < 0 else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the descriptor; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    # -- directories -----------------------------------------------------------------------------------------

    def enter(self, name: str, *, make: bool = False) -> Place:
        """Opens a private directory in this one; `make` makes a missing one first."""
        if make:
            with suppress(FileExistsError):
                self.make(name)
        path = self.path_of(name)
        return Place(_open_directory(name, self.fd, path, True, "KERNELBOX_HOME"), path)

    def make(self, name: str) -> None:
        """Makes a private directory in this one; raises FileExistsError if the name is taken."""
        os.mkdir(name, 0o700, dir_fd=self.fd)

    def path_of(self, name: str) -> str:
        """Returns the path of an entry, for messages."""
        return f"{self.path}/{name}"

    def reach(self, name: str) -> str:
        """Returns a path for a socket's address; with /proc it is short and goes through the descriptor."""
        return f"/proc/self/fd/{self.fd}/{name}" if os.path.isdir("/proc/self/fd") else self.path_of(name)

    def listdir(self, most: int | None = None) -> list[str]:
        """Returns the names of the entries; with `most`, of at most that many."""
        # Not by our own descriptor: threads and templates share its position, so each would see a part of the entries.
        fd = os.open(".", _DIRECTORY, dir_fd=self.fd)
        try:
            if most is None:
                return os.listdir(fd)
            with os.scandir(fd) as entries:
                return [entry.name for entry in islice(entries, most)]
        finally:
            os.close(fd)

    def stat(self, name: str) -> os.stat_result:
        """Returns the status of an entry; a link is not followed."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        """Tells whether the name is taken, even by a link that leads nowhere."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    # -- files -----------------------------------------------------------------------------------------------

    def read(self, name: str, limit: int) -> bytes:
        """Returns the bytes of a regular file; raises StoreFailed if there are more than `limit`."""
        fd, info = self._open_file(name, os.O_RDONLY)
        try:
            if info.st_size <= limit:
                return os.read(fd, info.st_size)
        finally:
            os.close(fd)
        raise StoreFailed(f"{self.path_of(name)!r} is larger than {limit:,} bytes, and is not read")

    def head(self, name: str, limit: int) -> bytes:
        """Returns the first bytes of a regular file, at most `limit`."""
        fd, _ = self._open_file(name, os.O_RDONLY)
        try:
            return os.read(fd, limit)
        finally:
            os.close(fd)

    def tail(self, name: str, limit: int) -> bytes:
        """Returns the last bytes of a regular file, at most `limit`."""
        fd, info = self._open_file(name, os.O_RDONLY)
        try:
            return os.pread(fd, limit, max(0, info.st_size - limit))
        finally:
            os.close(fd)

    def open_for_reading(self, name: str) -> int:
        return self._open_file(name, os.O_RDONLY)[0]

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file so that readers see either the old bytes or the new, even after a crash; replaces a link."""
        new = self._write_beside(name, data)
        try:
            self.rename(new, name)
        except BaseException:
            with suppress(OSError):
                self.remove(new)
            raise

    def add(self, name: str, data: bytes) -> bool:
        """Writes a new file completely or not at all; False if the name is taken."""
        new = self._write_beside(name, data)
        try:
            self.link(new, name)
        except FileExistsError:
            return False
        finally:
            self.remove(new)
        return True

    def create(self, name: str) -> int:
        """Returns a descriptor of a new, empty file; raises FileExistsError if the name is taken."""
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600, dir_fd=self.fd)

    def open_existing(self, name: str) -> int:
        """Returns a descriptor to write to an existing regular file that has no other name."""
        fd, info = self._open_file(name, os.O_RDWR)
        if info.st_nlink <= 1:
            return fd
        os.close(fd)
        raise StoreFailed(f"{self.path_of(name)!r} has another name as well, and is not used")

    def open_for_writing(self, name: str, flags: int = 0) -> int:
        """Returns a descriptor to read and write a file, and makes a missing one; O_APPEND can be a flag.

        Anything that is not a regular file of this user with this one name is removed first, so that nothing is written
        anywhere else.
        """
        for _ in range(_ATTEMPTS):
            try:
                fd, info = self._open_file(name, os.O_RDWR | os.O_CREAT | flags)
                if info.st_nlink <= 1:  # 0 if it was removed meanwhile, which can happen at any time
                    return fd
                os.close(fd)
            except PermissionError:
                if not self.exists(name):
                    raise
            except StoreFailed:
                pass
            self.remove_tree(name)
        raise StoreFailed(f"{self.path_of(name)!r} is in the way of a file of kernelbox; remove it")

    def link(self, old: str, new: str) -> None:
        """Gives a file another name; raises FileExistsError if that is taken."""
        os.link(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Removes an entry that is not a directory."""
        os.unlink(name, dir_fd=self.fd)

    def remove_tree(self, name: str) -> None:
        """Removes an entry and everything below it, as far as possible. Links are not followed."""
        try:
            self.remove(name)
        except (IsADirectoryError, PermissionError):  # for a directory, Linux says the first and POSIX the second
            with suppress(OSError):
                remove_directory(name, self.fd)
        except OSError:
            pass

    def remove_rubbish(self, *endings: str, of: str = "") -> None:
        """Removes old unfinished files and entries with these endings; only those `of` a name, if given."""
        for name in self.listdir():
            if name.startswith(of) and name.endswith((UNFINISHED, *endings)) and self.is_rubbish(name):
                self.remove_tree(name)

    def is_rubbish(self, name: str) -> bool:
        """Tells whether an entry that should exist only for a moment is too old."""
        try:
            return time.time() - self.stat(name).st_mtime > _RUBBISH_AFTER
        except FileNotFoundError:
            return False  # another process was faster

    def _open_file(self, name: str, flags: int) -> tuple[int, os.stat_result]:
        """Opens a regular file of this user; raises StoreFailed for anything else."""
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
        """Writes a file under a unique name, and returns that name."""
        new = f"{name}.{os.getpid()}-{os.urandom(3).hex()}{UNFINISHED}"
        fd = self.create(new)
        try:
            write_all(fd, data)
        except BaseException:
            with suppress(OSError):
                self.remove(new)
            raise
        finally:
            os.close(fd)
        return new


def write_all(fd: int, data: bytes) -> None:
    """Writes all of the data, since one write(2) may take only a part."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _open_directory(name: str, dir_fd: int | None, path: str, private: bool, setting: str) -> int:
    """Opens a directory; raises StoreFailed if it is a link, belongs to another user, or is open to others."""
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
