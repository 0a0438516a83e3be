"""The files of a kernel's cell log (wire/_cell_log.py): opened for a process, read, and carried to the next kernel.

Cells can write to them, so they are read only up to a limit, and nothing in them is believed.
"""

from __future__ import annotations

import os
import time

from kernelbox.base._light_stdlib import suppress
from kernelbox.host.files._place import write_all
from kernelbox.wire._cell_log import (
    BEGAN,
    ENDED,
    HEADER_SIZE,
    LOST,
    MOST,
    SHOWN,
    LogRecord,
    make_header,
    make_record,
    read_began,
    read_number,
    read_records,
)
from kernelbox.wire._framing import encode
from kernelbox.wire._layout import CELLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.host.files._place import Place
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.wire._messages import Output

# Bytes of what a cell had written but not sent: more than its keeper keeps.
_MOST_WORDS = 3 * 1024 * 1024

# Characters of a cause that are written: no real cause has as many.
_LONGEST_CAUSE = 2_000


def open_cells(place: Place) -> tuple[int, int]:
    """Returns descriptors of the two files for a process that is about to start, the newer one first."""
    fds: list[int] = []
    try:
        for name in CELLS:
            fds += [place.open_for_writing(name, os.O_APPEND)]
        fds.sort(key=_number, reverse=True)
        if not _number(fds[0]):
            os.ftruncate(fds[0], 0)
            write_all(fds[0], make_header(1))
        return fds[0], fds[1]
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def read_log(directory: KernelDirectory) -> tuple[list[LogRecord], bool]:
    """Returns the records of a kernel's log, oldest first, and whether older ones have been dropped."""
    try:
        with directory.open() as place:
            files = [_head(place, name) for name in CELLS]
    except OSError:
        return [], False
    files = sorted(filter(read_number, files), key=read_number)
    records = [record for data in files for record in read_records(data)[0]]
    return records, bool(files) and read_number(files[0]) > 1


def note_loss(directory: KernelDirectory, cause: str, leftovers: Callable[[str], list[Output]]) -> None:
    """Adds to the log that the process has ended, unless it says so already; `leftovers` is as in `make_loss`."""
    with suppress(OSError), directory.open() as place:  # what cannot be logged must not stop a restart
        newest = max(CELLS, key=lambda name: read_number(_head(place, name)))
        fd = place.open_for_writing(newest, os.O_APPEND)
        try:
            records, sound = read_records(_read(fd))
            if records and records[-1].kind != LOST:
                os.ftruncate(fd, sound)
                write_all(fd, make_loss(records, cause, leftovers))
        finally:
            os.close(fd)


def make_loss(records: list[LogRecord], cause: str, leftovers: Callable[[str], list[Output]]) -> bytes:
    """Returns the records for the end of a process; `leftovers` returns what an execution had written but not sent."""
    now = time.time()
    words = b"".join(map(encode, leftovers(running))) if (running := _find_running(records)) else b""
    words = words if len(words) <= _MOST_WORDS else b""
    lost = make_record(LOST, now, cause[:_LONGEST_CAUSE].encode("utf-8", "backslashreplace"))
    return (make_record(SHOWN, now, words) if words else b"") + lost


def carry_over(old: Place, new: Place) -> None:
    """Copies the log of a kernel to the directory of the one that takes its place, or of its copy."""
    with suppress(OSError):
        for name in CELLS:
            if data := _head(old, name):
                new.replace(name, data)


def _find_running(records: list[LogRecord]) -> str:
    """Returns the id of the execution that has begun and not ended."""
    for record in reversed(records):
        if record.kind in (ENDED, LOST):
            return ""
        if record.kind == BEGAN:
            with suppress(ValueError):
                return read_began(record.body)[0]
    return ""


def _head(place: Place, name: str) -> bytes:
    try:
        fd = place.open_for_reading(name)
    except OSError:
        return b""
    try:
        return _read(fd)
    finally:
        os.close(fd)


def _read(fd: int) -> bytes:
    return os.pread(fd, min(os.fstat(fd).st_size, MOST), 0)


def _number(fd: int) -> int:
    return read_number(os.pread(fd, HEADER_SIZE, 0))
