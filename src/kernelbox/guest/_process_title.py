"""What `ps` shows of a process: `kernelbox: demo (busy)`, in the place of the arguments that its template was given.

The system reads a command line from the memory of its process (proc(5): `cmdline`), so writing there is all it takes. A
kernel, which is a fork of its template, has the place too. Elsewhere than on Linux nothing is shown.
"""

from __future__ import annotations

import ctypes

from kernelbox.guest._stdlib import os
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Fields of /proc/self/stat behind the name: where the arguments begin and end.
_ARG_START, _ARG_END = 45, 46

# Characters of a kernel's name that are shown: a name may be long, and a line of `ps` is not.
_LONGEST = 60

_ACTIVITIES = (b"idle", b"idle", b"busy")  # by the numbers of the state file
_place: memoryview | None = None
_activity: memoryview | None = None


def find_place() -> None:
    """Finds where the arguments of this process are. Called once, in the template."""
    global _place
    try:
        with open("/proc/self/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    if 0 < start < end:  # 0 where a process must not know
        _place = memoryview((ctypes.c_char * (end - start)).from_address(start)).cast("B")


def show_role(role: str, *arguments: str) -> None:
    """Shows what this process is for. The arguments stay arguments of their own, by which others recognize it."""
    global _activity
    _activity = None
    _write(b"\0".join([f"kernelbox: {role}".encode(), *map(os.fsencode, arguments)]))


def show_kernel(name: str) -> None:
    """Shows which kernel this process is; `show_activity` says more."""
    global _activity
    shown = f"kernelbox: {_printable(name)} (".encode()
    _write(shown + _ACTIVITIES[0] + b")")
    end = len(shown) + len(_ACTIVITIES[0])
    _activity = None if _place is None or end >= len(_place) else _place[len(shown) : end]


def show_checkpoint(name: str, number: int) -> None:
    """Shows which checkpoint this process is."""
    show_role(f"{_printable(name)} (checkpoint {number})")


def show_activity(activity: int) -> None:
    """Shows what the kernel does. This is four bytes of memory, because it happens twice in every cell."""
    if _activity is not None:
        _activity[:] = _ACTIVITIES[activity]


def _printable(name: str) -> str:
    shown = name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
    return "".join(character if character.isprintable() else "?" for character in shown)


def _write(title: bytes) -> None:
    if _place is not None:
        # The last byte stays 0, or the system would read on into the environment.
        _place[:] = title[: len(_place) - 1].ljust(len(_place), b"\0")
