"""The folders of installed packages, and the `.pth` files in them, which add folders to every interpreter's path."""

from __future__ import annotations

import contextlib
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.base._interpreter import Interpreter

# The `.pth` files of each folder, and when the folder was last changed.
_files_of: dict[str, tuple[int, list[str]]] = {}

# Two changes within one tick of a coarse clock have the same time. So a list is cached only if the change is older.
_COARSEST_CLOCK = 2_000_000_000  # ns, of FAT


def import_stamps(interpreter: Interpreter) -> list[list[object]]:
    """Returns what changes when packages are installed, upgraded or removed.

    A running interpreter sees new files in the folders that it searches. It reads `.pth` files, which add folders, only
    when it starts.
    """
    stamps: list[list[object]] = []
    for folder in interpreter.folders:
        with contextlib.suppress(OSError):
            stamps.append([folder, os.stat(folder).st_mtime_ns])
            stamps += [[path, os.stat(path).st_mtime_ns] for path in _path_files(folder)]
    return sorted(stamps, key=str)


def added_folders(interpreter: Interpreter) -> list[str]:
    """Returns the folders that `.pth` files name."""
    found: set[str] = set()
    for folder in interpreter.folders:
        with contextlib.suppress(OSError):
            for path in _path_files(folder):
                with open(path, encoding="utf-8-sig", errors="replace") as file:
                    found.update(os.path.abspath(os.path.join(folder, line.strip())) for line in file if line.strip())
    return sorted(path for path in found if os.path.isdir(path))


def _path_files(folder: str) -> list[str]:
    """Returns the `.pth` files of a folder, which is large, and so is read again only when it has changed."""
    changed = os.stat(folder).st_mtime_ns
    known_at, known = _files_of.get(folder, (-1, []))
    if known_at == changed:
        return known
    looked_at = time.time_ns()
    with os.scandir(folder) as entries:
        found = [entry.path for entry in entries if entry.name.endswith(".pth")]
    if changed < looked_at - _COARSEST_CLOCK:
        _files_of[folder] = changed, found
    return found
