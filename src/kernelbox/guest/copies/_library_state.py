"""State of modules that a copy of the process must not share: randomness, child processes, exit functions."""

from __future__ import annotations

import atexit
import gc
import random
import weakref
from dataclasses import dataclass
from typing import Any

from kernelbox.guest._stdlib import contextlib, os, sys, time
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# What the generator behind `numpy.random.rand` consists of.
_MT19937_WORDS = 624

# The garbage collector skips frozen objects. All of them are searched again when the memory in use has doubled since
# the last search, or after this many copies. A search takes a second for ten million objects, and at most 1 % of the
# time.
_COPIES = 50
_SHARE = 0.01


@dataclass(slots=True)
class LastLook:
    """The last search of all objects: the pages in use after it, when it ended, how long it took, copies since."""

    pages: int = 0
    ended: float = 0.0
    took: float = 0.0
    copies: int = 0


_last = LastLook()


def freeze() -> None:
    """Keeps the garbage collector from writing to each object, because each written page is no longer shared."""
    pages, began = _count_pages(), time.monotonic()
    _last.copies += 1
    has_grown = pages > 2 * _last.pages
    is_due = _last.copies > _COPIES and _last.took < _SHARE * (began - _last.ended)
    if _last.pages and (has_grown or is_due):
        gc.unfreeze()
        gc.collect()
        pages, ended = _count_pages(), time.monotonic()
        _last.pages, _last.ended, _last.took, _last.copies = pages, ended, ended - began, 0
    _last.pages = _last.pages or pages
    gc.freeze()


def _count_pages() -> int:
    """Returns the pages of memory that this process uses. The collector would have to count its objects one by one."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1])


class RandomState:
    """The state of Python's random numbers. Python seeds them anew in a fork, but a checkpoint continues as it was."""

    def __init__(self) -> None:
        self._state = random.getstate()

    def restore(self) -> None:
        random.setstate(self._state)


def reseed() -> None:
    """Seeds the random numbers of Python, numpy and PyTorch anew."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None and "numpy.random" in sys.modules:
        # All of the generator's state, at once: its own way to seed itself copies twice as many pages.
        state = numpy.frombuffer(os.urandom(_MT19937_WORDS * 4), numpy.uint32)
        numpy.random.set_state(("MT19937", state, _MT19937_WORDS))
    if (uuid := sys.modules.get("uuid")) is not None:
        uuid._last_timestamp = None  # type: ignore[attr-defined]  # what uuid1() counts from
    if (torch := sys.modules.get("torch")) is not None:
        with contextlib.suppress(Exception):  # half imported
            torch.seed()


def forget_exit_functions() -> None:
    """Drops the exit functions, which belong to the original: a copy would remove its temporary directories."""
    atexit._clear()
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    for info in list(registry.values()):
        info.atexit = False


def forget_children() -> None:
    """Forgets the children of the original, and the processes that serve it."""
    _clear("subprocess", "_active")
    _clear("multiprocessing.process", "_children")
    _reset("multiprocessing.resource_tracker", "_resource_tracker", "_fd", "_pid")
    _reset("joblib.externals.loky.backend.resource_tracker", "_resource_tracker", "_fd", "_pid")
    fields = ("_forkserver_pid", "_forkserver_fd", "_forkserver_address", "_forkserver_alive_fd")
    _reset("multiprocessing.forkserver", "_forkserver", *fields)


def _clear(module: str, name: str) -> None:
    with contextlib.suppress(Exception):  # a cell may have put anything there
        getattr(sys.modules.get(module), name).clear()


def _reset(module: str, name: str, *fields: str) -> None:
    if (keeps := getattr(sys.modules.get(module), name, None)) is not None:
        for field in fields:
            with contextlib.suppress(Exception):
                setattr(keeps, field, None)
