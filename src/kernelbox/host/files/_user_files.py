"""Files in the user's directories, of any owner and mode: opened step by step, without following links."""

from __future__ import annotations

import os

from kernelbox.base._light_stdlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

READABLE = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY

# With O_PATH, a directory that cannot be listed can still be entered.
SEARCHABLE = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_directory(start: str, parts: Iterable[str], *, make: bool, flags: int = READABLE) -> int:
    """Returns a descriptor of the directory that the names lead to; `make` makes missing directories."""
    current = os.open(start, flags)
    try:
        for part in parts:
            try:
                inner = os.open(part, flags, dir_fd=current)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
                inner = os.open(part, flags, dir_fd=current)
            os.close(current)
            current = inner
    except BaseException:
        os.close(current)
        raise
    return current


def create_new(name: str, directory: int, *, mode: int | None = None) -> int:
    """Makes a file that must not exist yet; returns a descriptor to write to it."""
    fd = os.open(name, _NEW, 0o644, dir_fd=directory)
    if mode is not None:
        os.fchmod(fd, mode)
    return fd


def write_new(name: str, data: bytes, directory: int) -> None:
    """Writes a file that must not exist yet; nothing is left if that fails."""
    fd = create_new(name, directory)
    try:
        with open(fd, "wb") as file:
            file.write(data)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)
        raise
