"""The dynamic loader, copied into memory: with it an interpreter runs whose program is no file.

A process reaches the file of its program past all that is mounted, by /proc/self/exe, and can change the mode and the
times of one that its user owns. What the loader starts has the loader for its program, and the copy is no one's file.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

# The head of a program in 64 bits (elf(5)), and what is where in it: the table of its parts, the size of an entry and
# their number. The part of this kind names the loader.
_HEAD, _TABLE_AT, _ENTRY_AT = 64, 32, 54
_PT_INTERP = 3

_MFD_EXEC = 0x10  # Linux 6.3; before that every file in memory could be executed


def is_users_own(program: str) -> bool:
    """Tells whether the user owns the file of a program."""
    return os.stat(program).st_uid == os.geteuid()


def interpreter() -> str:
    """Returns the file of the interpreter that runs this."""
    return os.path.realpath(sys.executable)


def loader_command(arguments: list[str]) -> list[str]:
    """Returns the command that runs the interpreter by the loader: `python` is what lists of processes show."""
    return ["python", "--argv0", sys.executable, interpreter(), *arguments]


@contextlib.contextmanager
def copy_loader(program: str) -> Iterator[int]:
    """Gives the descriptor of a copy of the loader that a program names; raises OSError, also if there is none."""
    import fcntl  # not on every system

    with open(program, "rb") as file:
        name = _find_loader(file)
    fd = _make_file()
    try:
        with open(name, "rb") as loader, open(fd, "wb", closefd=False) as copy:
            copy.write(loader.read())
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield fd
    finally:
        os.close(fd)


def _make_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("python", flags | _MFD_EXEC)
    except OSError:
        return os.memfd_create("python", flags)


def _find_loader(file: BinaryIO) -> str:
    head = file.read(_HEAD)
    if len(head) == _HEAD and head.startswith(b"\x7fELF\x02"):
        order = "<" if head[5] == 1 else ">"
        (table,) = struct.unpack_from(f"{order}Q", head, _TABLE_AT)
        size, count = struct.unpack_from(f"{order}HH", head, _ENTRY_AT)
        file.seek(table)
        for _ in range(count):
            kind, _flags, at, _address, _physical, length = struct.unpack_from(f"{order}IIQQQQ", file.read(size))
            if kind == _PT_INTERP:
                file.seek(at)
                return os.fsdecode(file.read(length).rstrip(b"\0"))
    raise OSError("it names no loader")
