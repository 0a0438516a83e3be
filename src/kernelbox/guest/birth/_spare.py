"""A spare: a fork of the template that is made ahead, and waits to become the next kernel.

Most of what a fork costs is paid later: the system copies each page when the new process first writes to it. A spare
has its copies when a request comes. The template learns which pages to copy from a kernel that has run its first cell.
Plain and guarded kernels are made of a spare. Those in a sandbox or with limits are not: they must start in their own
namespaces or control groups.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NoReturn

from kernelbox.guest._descriptors import Descriptors, close
from kernelbox.guest._keeper_link import CAN_LINK, make_link, receive_packet, send_packet
from kernelbox.guest._process_title import show_role
from kernelbox.guest.birth._keeper import Keeper
from kernelbox.guest.birth._specialize import Birth, specialize
from kernelbox.wire._messages import Spawn

# When the template has had nothing to do for so long it makes a spare; in a burst of requests it never does.
_DELAY = 0.002

# After the first request it looks this often, for so long, whether the kernel has run a cell: then it can learn.
_LOOK = 0.05
_LOOKING = 5.0

# A spare that no request needs for so long is ended.
_PATIENCE = 60.0

# More pages than a first cell writes to, some 1,600: a kernel with more has been used for something.
_MOST_PAGES = 3000

# Bytes. Larger mappings hold data or are only reserved; what tells of their pages would take megabytes.
_LARGEST_MAPPING = 2**30

# Requests of more bytes, for paths of unusual length, are forked for.
_LONGEST_REQUEST = 16 * 1024

# Kernels that are looked at to learn from them: each look opens a file, and there may be thousands.
_CANDIDATES = 8

# What the keeper alone needs of what comes with a request.
_OF_KEEPER = ("directory", "opening", "lifeline", "reports", "link", "door")

# madvise(2), since Linux 5.14: copies pages as if they were written to.
_POPULATE_WRITE = 23

# In /proc/PID/pagemap, proc(5): the page is present, and no other process has it.
_PRESENT, _EXCLUSIVE = 1 << 63, 1 << 56

_madvise: Any = getattr(ctypes.PyDLL(None), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Spares:
    """Makes spares for a template, one at a time."""

    def __init__(self, keeper: Keeper, files_limit: tuple[int, int]) -> None:
        self._keeper = keeper
        self._files_limit = files_limit
        self._pages: list[tuple[int, int]] = []
        self._unfit: set[int] = set()  # kernels that have shown too many pages
        self._link = -1

    def due_in(self, used_at: float) -> float:
        """Returns when to look again: soon, if a spare should be made. Ends one that is not needed since `used_at`."""
        unused = time.monotonic() - used_at
        if unused > _PATIENCE:
            self.end()
        if unused > _PATIENCE or self._keeper.spare or not self._keeper.kernels or not CAN_LINK:
            return math.inf
        if self._pages or self._learn():
            return _DELAY
        return _LOOK if unused < _LOOKING else math.inf

    def make(self, close_all: Callable[[], None]) -> None:
        """Forks a spare if it is known what one needs. It closes all that belongs to the template."""
        if not self._pages:
            return
        template = os.getpid()
        try:
            ours, theirs = make_link()
        except OSError:
            return  # too many files are open; kernels start without a spare too
        try:
            pid = os.fork()
        except OSError:
            os.close(ours)
            os.close(theirs)
            return
        if pid == 0:
            os.close(ours)
            close_all()
            _wait(theirs, self._pages, template, self._files_limit)
        os.close(theirs)
        self.end()  # one that has ended by itself has left its link
        self._keeper.spare, self._link = pid, ours

    def give(self, spawn: Spawn, given: Descriptors) -> int:
        """Makes the spare a kernel, and returns its pid; 0 if there is none, or none for such a kernel."""
        pid = self._keeper.spare
        if not pid or spawn.limits or len(spawn.cwd) + len(spawn.directory) > _LONGEST_REQUEST:
            return 0
        spawn.descriptors = [name for name in given.names if name not in _OF_KEEPER]
        try:
            send_packet(self._link, spawn, [given[name] for name in spawn.descriptors])
        except OSError:
            self.end()  # it has been killed
            return 0
        self._keeper.spare = 0
        self.end()
        return pid

    def end(self) -> None:
        """Ends the spare, if there is one, and closes what leads to it."""
        pid, self._keeper.spare = self._keeper.spare, 0
        close(*self.descriptors)
        self._link = -1
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self._link,) if self._link >= 0 else ()

    def _learn(self) -> bool:
        """Finds the pages that a kernel of this template writes to by its first cell, once there is one to show it."""
        newest = (pid for pid in reversed(self._keeper.kernels) if pid not in self._unfit)
        for pid in [pid for pid in islice(newest, _CANDIDATES) if self._keeper.kernels[pid].has_run]:
            with contextlib.suppress(OSError):  # it has ended, or hides its memory
                pages = list(_copied_pages(pid))
                if sum(size for _, size in pages) <= _MOST_PAGES * mmap.PAGESIZE:
                    self._pages = pages
                    return True
            self._unfit.add(pid)
        return False


def _wait(link: int, pages: list[tuple[int, int]], template: int, files_limit: tuple[int, int]) -> NoReturn:
    """Waits, in the spare, for the request that it becomes a kernel for; it ends when the template does."""
    try:
        show_role("spare")
        for start, size in pages:
            _madvise(start, size, _POPULATE_WRITE)  # an older system refuses, and copies them later
        received = receive_packet(link)
        if received is not None and isinstance(received.message, Spawn):
            os.close(link)
            given = Descriptors(dict(zip(received.message.descriptors, received.fds, strict=True)))
            specialize(Birth(received.message, given, template, files_limit, None))
    finally:
        os._exit(0)


def _copied_pages(pid: int) -> Iterator[tuple[int, int]]:
    """Yields where pages lie that a fork of this process has copied, and how many bytes that are. Raises OSError."""
    size = mmap.PAGESIZE
    with open("/proc/self/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for line in maps:
            place, mode, *_, name = line.split(maxsplit=5)
            if mode != "rw-p" or name.startswith("["):
                continue
            start, end = (int(number, 16) for number in place.split("-"))
            if end - start > _LARGEST_MAPPING:
                continue
            data = os.pread(pagemap.fileno(), (end - start) // size * 8, start // size * 8)
            first = None
            for index, (flags,) in enumerate(struct.iter_unpack("Q", data + bytes(8))):
                copied = flags & _PRESENT and flags & _EXCLUSIVE
                if copied and first is None:
                    first = index
                elif not copied and first is not None:
                    yield start + first * size, (index - first) * size
                    first = None
