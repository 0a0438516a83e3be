"""What a keeper holds open for all of its kernels: it waits for thousands of descriptors at once, and forks close them.

Neither takes longer with more kernels. The system keeps the list of what is watched, and a fork does not look at the
kernels: it would copy the memory of each, because Python counts references there.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator

from kernelbox.guest._descriptors import Descriptors, close
from kernelbox.guest.birth._child_kernel import WATCHED


class HeldFiles:
    """The descriptors that are held for kernels, each as long as it is kept there."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._open = bytearray()  # 1 at the number of each

    @property
    def watched(self) -> list[int]:
        """What is readable while one of those watched is: one descriptor, or all of them on a system without such."""
        fileno = getattr(self._selector, "fileno", None)
        return [key.fd for key in self._selector.get_map().values()] if fileno is None else [fileno()]

    def hold(self, pid: int, given: Descriptors) -> Descriptors:
        """Takes over what is held for a kernel."""
        held = _Held(self, pid)
        held.adopt(given)
        return held

    def readable(self) -> Iterator[tuple[int, str, int]]:
        """Yields the watched descriptors that are readable: the kernel's pid, the name and the number of each."""
        for key, _ in self._selector.select(0):
            pid, name = key.data
            yield pid, name, key.fd

    def add(self, pid: int, name: str, number: int) -> None:
        if number >= len(self._open):
            self._open.extend(bytes(number + 1 - len(self._open)))
        self._open[number] = 1
        if name in WATCHED:
            self._selector.register(number, selectors.EVENT_READ, (pid, name))

    def drop(self, name: str, number: int) -> None:
        self._open[number] = 0
        if name in WATCHED:
            self._selector.unregister(number)

    def close_in_fork(self) -> None:
        """Closes all of them, in a fork; the original goes on to watch its own."""
        first = self._open.find(1)
        while first >= 0:
            after = self._open.find(0, first)
            after = len(self._open) if after < 0 else after
            os.closerange(first, after)
            first = self._open.find(1, after)
        # Not by its own method, which would take the list of all kernels to pieces. macOS has closed it already.
        close(*self.watched)


class _Held(Descriptors):
    """What is held for one kernel."""

    def __init__(self, files: HeldFiles, pid: int) -> None:
        super().__init__()
        self._files = files
        self._pid = pid

    def keep(self, name: str, number: int) -> None:
        super().keep(name, number)
        self._files.add(self._pid, name, number)

    def take(self, name: str) -> int:
        number = super().take(name)
        self._files.drop(name, number)
        return number
