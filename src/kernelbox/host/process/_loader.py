"""A copy of the dynamic loader in memory, which runs the interpreter so that the process's program is not a file.

A process can reach the file of its program through /proc/self/exe, in spite of all mounts, and can change its mode and
times if its user owns it. For a program that the loader starts, /proc/self/exe is the loader: here a copy in memory.
"""

from __future__ import annotations

import contextlib
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from kernelbox.base._interpreter import Interpreter

# The header of a 64-bit program (elf(5)), and the offsets in it of the table of segments and of the size of an entry,
# which the number of entries follows. The segment of this type names the loader.
_HEAD, _TABLE_AT, _ENTRY_AT = 64, 32, 54
_PT_INTERP = 3

_MFD_EXEC = 0x10  # Linux 6.3; before that every file in memory could be executed


def is_users_own(program: str) -> bool:
    return os.stat(program).st_uid == os.geteuid()


def loader_command(interpreter: Interpreter, arguments: list[str]) -> list[str]:
    """Returns the command that runs an interpreter through the loader; lists of processes show `python`."""
    return ["python", "--argv0", interpreter.executable, interpreter.program, *arguments]


@contextlib.contextmanager
def copy_loader(program: str) -> Iterator[int]:
    """Yields a descriptor of a copy of the loader that a program names; raises OSError, even if it names none."""
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
    raise OSError("it does not name a loader")
