"""The directory that commands run in: it decides what a command does as much as its text, so it is approved with it."""

from __future__ import annotations

import errno

from kernelbox.guest._pristine import os
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

_given = b""


def keep_given() -> None:
    """Remembers the directory as the one that the kernel was given; called before any code of a user's."""
    global _given
    try:
        _given = os.getcwdb()
    except FileNotFoundError:  # it has been deleted since
        _given = b""


def is_given(directory: bytes) -> bool:
    """Tells whether the kernel was given this directory, and no cell has chosen it."""
    return directory == _given


def take_directory() -> bytes:
    """Returns the kernel's directory by its real path; raises FileNotFoundError if it was deleted."""
    try:
        return os.getcwdb()
    except FileNotFoundError:
        problem = "the working directory was deleted, so no command in it can be approved; use os.chdir() first"
        raise FileNotFoundError(errno.ENOENT, problem) from None


def directory_of(pid: int) -> bytes:
    """Returns the directory of another process; the given one where the system does not tell."""
    try:
        return os.readlink(b"/proc/%d/cwd" % pid)
    except OSError:
        return _given
