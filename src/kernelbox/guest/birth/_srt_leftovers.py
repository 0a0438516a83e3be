"""Cleans up after an srt that has ended: unreported deaths of kernels, processes, empty files, directories."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import time
from typing import Any

from kernelbox.guest.birth._keeper import end_children, write_note
from kernelbox.wire._layout import DEATH, KEPT, SRT_PLACE, is_kernel_id


def clean_up(runtime: int, wanted: dict[str, Any], reason: str) -> None:
    """Writes down why the kernels of an srt died, and removes what it left; `wanted` is its plan."""
    _tell(runtime, wanted["token"], f"{reason}, and with it all of its kernels")
    end_children()
    for path in wanted["absent"]:
        _remove_placeholder(path)
    shutil.rmtree(wanted["place"], ignore_errors=True)
    _remove_abandoned(os.path.dirname(wanted["place"]))


def _tell(runtime: int, token: str, reason: str) -> None:
    """Writes the cause of death for each kernel that was alive in this srt."""
    for name in filter(is_kernel_id, os.listdir(runtime)):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=runtime)
            try:
                kept = _read(directory, KEPT)
                if kept["token"] == token and _read(directory, DEATH).get("start_time") != kept["start_time"]:
                    write_note(directory, {"start_time": kept["start_time"], "reason": reason, "at": time.time()})
            finally:
                os.close(directory)


def _read(directory: int, name: str) -> dict[str, Any]:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        return {}
    with open(fd) as file:
        return dict(json.load(file))


def _remove_placeholder(path: str) -> None:
    """Removes what was not there before srt was started, if it looks like what bubblewrap mounts something on."""
    with contextlib.suppress(OSError):
        if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
            return  # a cell has put a link there
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(path)  # fails if there is something in it
        elif stat.S_ISREG(found.st_mode) and found.st_size == 0 and not found.st_mode & 0o222:
            os.unlink(path)


def _remove_abandoned(directory: str) -> None:
    """Removes the directories of other srts whose parents were killed: no process has these locked.

    An empty directory was just made.
    """
    for entry in os.scandir(directory):
        with contextlib.suppress(OSError):
            if not entry.name.startswith(SRT_PLACE) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.listdir(fd):
                    shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(fd)
