"""Removes a directory and everything below it: through descriptors, without following links, to any depth."""

from __future__ import annotations

import errno
import os

from kernelbox.base._light_stdlib import suppress

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# How often a directory is emptied. The keeper of a kernel may write its note there meanwhile, but only once.
_ATTEMPTS = 5


def remove_directory(name: str, dir_fd: int) -> None:
    """Removes a directory; raises OSError if something in it cannot be removed."""
    for attempt in range(1, _ATTEMPTS + 1):
        fd = _open_to_empty(name, dir_fd)
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                _empty(fd)
        finally:
            os.close(fd)
        try:
            os.rmdir(name, dir_fd=dir_fd)
        except OSError as exc:
            if exc.errno != errno.ENOTEMPTY or attempt == _ATTEMPTS:
                raise
        else:
            return


def _empty(top: int) -> None:
    """Removes the contents of a directory.

    A directory below is moved up to `top` before it is emptied. So a deep tree needs neither stack nor descriptors,
    and after a crash everything is still in `top`.
    """
    waiting = _remove_files(top)
    while waiting:
        name = waiting.pop()
        with suppress(OSError):
            fd = _open_to_empty(name, top)
            try:
                waiting += [moved for child in _remove_files(fd) if (moved := _move_up(child, fd, top))]
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)


def _remove_files(fd: int) -> list[str]:
    """Removes every entry that is not a directory; returns the names of the directories."""
    directories = []
    for name in os.listdir(fd):
        try:
            os.unlink(name, dir_fd=fd)
        except (IsADirectoryError, PermissionError):
            directories.append(name)
        except OSError:
            pass
    return directories


def _move_up(name: str, fd: int, top: int) -> str | None:
    """Moves a directory into `top`, and returns its new name; None if it cannot be moved."""
    new = os.urandom(8).hex()
    with suppress(OSError):
        os.close(_open_to_empty(name, fd))  # rename(2) needs write permission on a directory that gets another parent
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=top)
        return new
    return None


def _open_to_empty(name: str, dir_fd: int) -> int:
    """Opens a directory to remove its entries, and sets the permissions that this needs if the user owns it."""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            raise
        path = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=dir_fd)  # needs no permission, and does not follow links
        try:
            os.chmod(f"/proc/self/fd/{path}", 0o700)
        finally:
            os.close(path)
        fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    info = os.fstat(fd)
    if info.st_uid == os.geteuid() and info.st_mode & 0o700 != 0o700:
        with suppress(OSError):
            os.fchmod(fd, 0o700)
    return fd
