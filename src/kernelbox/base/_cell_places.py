"""The places where cells of sandboxed kernels can write, according to the records read so far. They are not trusted.

A program that runs where its kernels work has that directory on `sys.path`, and libraries are imported when they are
first used. If a cell leaves a `logging.py` there, it must not run outside the sandbox. So code in a place that cells
cannot write imports from such places first; kernelbox imports from nowhere else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from importlib.machinery import PathFinder

from kernelbox.base._config import stores
from kernelbox.base._errors import KernelBoxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType
    from typing import Literal

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Directories that cells can write, and what is kept from them there.
_places: dict[str, frozenset[str]] = {}


def note_places(paths: Iterable[str], kept: Iterable[str] = ()) -> None:
    """Notes directories that cells can write. Once there is one, imports are guarded.

    `kept` is what is read-only for these cells. If others can write to the same directory, only what is kept from all
    of them counts.
    """
    apart = frozenset(map(os.path.realpath, kept))
    found = {place: _places.get(place, apart) & apart for place in map(os.path.realpath, paths)}
    if found.items() - _places.items():
        _places.update(found)
        if _Guard not in sys.meta_path:
            finders = sys.meta_path
            finders.insert(finders.index(PathFinder) if PathFinder in finders else len(finders), _Guard)


def can_cells_write(path: str) -> bool:
    """Tells whether cells may have made or changed a path. They cannot change the interpreter or kernelbox.

    A link in such a directory counts as made by a cell, wherever it leads.
    """
    return bool(_places) and any(_is_theirs(place) for place in (os.path.realpath(path), _real_parent(path)))


def is_in(path: str, directories: Iterable[str]) -> bool:
    """Tells whether a path is one of the directories, or lies in one."""
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)


def first_planted_link(path: str) -> str | None:
    """Returns the first link on an absolute path that cells may have made; None if there is none."""
    at, known = "/", False
    for step in filter(None, os.path.abspath(path).split("/")):
        at = os.path.join(at, step)
        if not os.path.islink(at):
            continue
        if not known:
            known = True
            _read_all_records()
        if _is_theirs(_real_parent(at)):
            return at
    return None


def _read_all_records() -> None:
    """Makes the stores of this process read records that are new to them, which notes where cells can write."""
    for known in stores[:]:
        with contextlib.suppress(KernelBoxError, OSError):  # a store that cannot be read says so when it is used
            if (store := known()) is not None:
                store.read_new()


def _is_theirs(path: str) -> bool:
    if is_in(path, _kept()):
        return False
    return any(is_in(path, (place,)) and not is_in(path, kept) for place, kept in _places.items())


def _kept() -> set[str]:
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, _PACKAGE)
    return {os.path.realpath(path) for path in prefixes} - {"/", "/usr"}


def _real_parent(path: str) -> str:
    directory, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(directory), name)


@functools.lru_cache(maxsize=8)
def _safe_entries(path: tuple[str, ...], cwd: str, *_known: tuple[str, frozenset[str]]) -> tuple[str, ...]:
    """Returns the entries of a search path where cells cannot write, by the places that are known."""
    return tuple(entry for entry in path if not can_cells_write(entry or cwd))


class _Guard:
    """Finds modules as Python does. Code that cells cannot write looks first, or only, where they cannot write."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None:
            return None  # in a package that was found before
        safe = _safe_entries(tuple(sys.path), os.getcwd() if "" in sys.path else "", *_places.items())
        if len(safe) == len(sys.path) or (importer := _importer(sys._getframe(1))) == "user":
            return None
        spec = PathFinder.find_spec(name, list(safe), target)
        if spec is not None or importer == "library":
            return spec
        for finder in sys.meta_path[sys.meta_path.index(PathFinder) + 1 :]:
            found = finder.find_spec(name, path, target)
            if found is not None and not can_cells_write(found.origin or os.curdir):
                return found
        raise ModuleNotFoundError(f"No module named {name!r} where cells cannot write", name=name)


def _importer(frame: FrameType | None) -> Literal["user", "kernelbox", "library"]:
    """Tells whose code imports. Code in a place that cells can write is the user's, and finds what is beside it.

    A library that is being imported, or called, by kernelbox imports for kernelbox.
    """
    nearest = True
    while frame is not None:
        module, file = str(frame.f_globals.get("__name__")), frame.f_globals.get("__file__") or frame.f_code.co_filename
        if module.partition(".")[0] == "kernelbox":
            return "kernelbox"
        if not module.startswith("importlib.") and module != "importlib":
            if not os.path.exists(file) or can_cells_write(file):
                return "user" if nearest else "library"
            nearest = False
        frame = frame.f_back
    return "library"
