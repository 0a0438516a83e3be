"""Descriptors by name: an object holds them, and closes each once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping


class Descriptors:
    """Open descriptors, each under a name. It owns them: what is not taken from it is closed with it."""

    def __init__(self, opened: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(opened or {})

    def __repr__(self) -> str:
        return f"<Descriptors {self._numbers}>"

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def __getitem__(self, name: str) -> int:
        return self._numbers[name]

    def get(self, name: str) -> int | None:
        return self._numbers.get(name)

    def name_of(self, number: int) -> str | None:
        """Returns what a descriptor is called here, None if it is none of these."""
        return next((name for name, each in self._numbers.items() if each == number), None)

    @property
    def numbers(self) -> list[int]:
        return list(self._numbers.values())

    def keep(self, name: str, number: int) -> None:
        """Takes a descriptor over."""
        assert name not in self._numbers, f"there are two descriptors called {name!r}"
        self._numbers[name] = number

    def open_pipe(self, reader: str, writer: str) -> None:
        """Opens a pipe, and keeps its two ends."""
        for name, number in zip((reader, writer), os.pipe(), strict=True):
            self.keep(name, number)

    def take(self, name: str) -> int:
        """Returns a descriptor that is the caller's from now on."""
        return self._numbers.pop(name)

    def move(self, *names: str) -> Descriptors:
        """Returns those of these descriptors that there are, in an object of their own."""
        return Descriptors({name: self.take(name) for name in names if name in self})

    def adopt(self, others: Descriptors) -> None:
        """Takes all descriptors of another object over."""
        for name in list(others._numbers):
            self.keep(name, others.take(name))

    def close_but(self, *names: str) -> None:
        """Closes all but these."""
        self.close(*(self._numbers.keys() - set(names)))

    def close(self, *names: str) -> None:
        """Closes those of these descriptors that there are."""
        for name in names:
            if name in self:
                close(self.take(name))

    def close_all(self) -> None:
        self.close(*self._numbers)


def read_all(fd: int) -> bytes:
    """Reads a descriptor to its end, and closes it."""
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    os.close(fd)
    return b"".join(parts)


def read_file(fd: int) -> bytes:
    """Reads a file from its beginning, and closes it: another keeper, which has ended, may have read it before."""
    parts, size = [], 0
    while part := os.pread(fd, 1 << 20, size):
        parts.append(part)
        size += len(part)
    os.close(fd)
    return b"".join(parts)


def close(*fds: int) -> None:
    """Closes descriptors; one that is closed already does not matter."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def close_many(fds: Iterable[int]) -> None:
    """Closes descriptors, those of thousands of kernels in a few calls: their numbers follow upon one another."""
    numbers = sorted(fds)
    first = 0
    for after in range(1, len(numbers) + 1):
        if after == len(numbers) or numbers[after] > numbers[after - 1] + 1:
            os.closerange(numbers[first], numbers[after - 1] + 1)
            first = after
