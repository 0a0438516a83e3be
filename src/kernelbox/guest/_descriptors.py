"""Descriptors by name: an object holds them, and closes each once."""

from __future__ import annotations

from collections.abc import Mapping

from kernelbox.guest._stdlib import contextlib, os
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())


class Descriptors:
    """Open descriptors, each under a name. It owns them, and closes those that were not taken from it."""

    def __init__(self, opened: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(opened or {})

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def __getitem__(self, name: str) -> int:
        return self._numbers[name]

    def get(self, name: str) -> int | None:
        return self._numbers.get(name)

    @property
    def names(self) -> list[str]:
        return list(self._numbers)

    @property
    def numbers(self) -> list[int]:
        return list(self._numbers.values())

    def keep(self, name: str, number: int) -> None:
        assert name not in self._numbers, f"there are two descriptors called {name!r}"
        self._numbers[name] = number

    def open_pipe(self, reader: str, writer: str) -> None:
        """Opens a pipe, and keeps its two ends."""
        for name, number in zip((reader, writer), os.pipe(), strict=True):
            self.keep(name, number)

    def take(self, name: str) -> int:
        """Returns a descriptor. From now on the caller owns it."""
        return self._numbers.pop(name)

    def move(self, *names: str) -> Descriptors:
        """Moves these descriptors, as far as they exist, into a new object."""
        return Descriptors({name: self.take(name) for name in names if name in self})

    def adopt(self, others: Descriptors) -> None:
        """Takes over all descriptors of another object."""
        for name in list(others._numbers):
            self.keep(name, others.take(name))

    def close_but(self, *names: str) -> None:
        self.close(*(self._numbers.keys() - set(names)))

    def close(self, *names: str) -> None:
        """Closes these descriptors, as far as they exist."""
        for name in names:
            if name in self:
                close(self.take(name))

    def close_all(self) -> None:
        self.close(*self._numbers)


def put_behind(number: int, new: int, *, inheritable: bool = False) -> None:
    """Puts what a new descriptor leads to behind a number that is in use, and closes the new one."""
    os.dup2(new, number, inheritable)
    os.close(new)


def read_all(fd: int) -> bytes:
    """Reads a descriptor to its end, and closes it."""
    with open(fd, "rb") as file:
        return file.read()


def read_file(fd: int) -> bytes:
    """Reads a file from its beginning, and closes it. A keeper that has ended may have read it before."""
    parts, size = [], 0
    while part := os.pread(fd, 1 << 20, size):
        parts.append(part)
        size += len(part)
    os.close(fd)
    return b"".join(parts)


def close(*fds: int) -> None:
    """Closes descriptors, and ignores those that are closed already."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
