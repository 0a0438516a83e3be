"""A job that this process runs: writes the entries of its file.

The file is open from the beginning of the job to its end. So the result can be written when no descriptor is free, and
most writes are one system call. A crash leaves the earlier entries; if the disk is full, events are deleted.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from weakref import WeakValueDictionary

from kernelbox.base._unique_objects import Owner
from kernelbox.host.files._place import UNFINISHED, write_all
from kernelbox.host.process._process import ProcessIdentity
from kernelbox.wire._json import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kernelbox.host.files._pinned import Pinned
    from kernelbox.host.files._place import Place
    from kernelbox.host.files._signed import Signature

    Event = tuple[int, str, bytes]

# What the heads of entries say: that it is a record of the job, or an event with its number and kind.
RECORD = "job"
EVENTS = "events-"

# What the event with the result begins with.
RESULT = b'{"result":'

# Fields of records: in the first of a file, the numbers that its events and those of earlier files begin with; at the
# end, the bytes of the last event, which is written just before.
FILES = "files"
LAST_SIZE = "last_size"
_FIRST_FILE = [1]

# The most bytes of one file, unless a single event is larger, and of all events kept for a job.
_LARGEST_FILE = 256 * 1024
_MOST_EVENTS = 16 * 1024 * 1024


# The jobs that this process has begun, as long as anything holds them.
_here: WeakValueDictionary[str, JobEntry] = WeakValueDictionary()

# Held while a job gets its name, so that nobody finds one that this process does not know yet.
_naming = threading.Lock()


class _OpenFile(Owner):
    """A file that is open for adding to. It is closed when nobody uses it, even if a thread is still writing to it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class JobEntry(Owner):
    """A job that this process runs: writes its events, and at the end its record."""

    def __init__(self, root: Pinned, signature: Signature, job_id: str) -> None:
        self.id = job_id
        self._next = 1  # the number of the first event that is not written
        self._root = root
        self._signature = signature
        self._record: dict[str, Any] = {}
        self._file: _OpenFile | None = None
        self._begins = 0  # bytes of the first record in the file
        self._size = 0  # bytes of the events in it
        self._first = 1  # the number of the first of them
        self._earlier: dict[int, int] = {}  # bytes of each file of earlier events, by the number of its first

    @property
    def is_open(self) -> bool:
        """Whether the job goes on."""
        return self._file is not None

    def begin(self, folder: Place, record: dict[str, Any]) -> bool:
        """Makes the file, complete; False if there is one."""
        self._record = record
        self._file, new = self._make_file(folder, self._running(record))
        try:
            with _naming:
                folder.link(new, self.id)
                _here[self.id] = self
        except FileExistsError:
            return False
        finally:
            folder.remove(new)
        return True

    def append(self, events: Sequence[Event], record: dict[str, Any] | None = None) -> None:
        """Writes events, which are JSON, and the record, if it has changed.

        If the disk is full, earlier events of the job are deleted; raises OSError if that is not enough, and then
        nothing of this is written.
        """
        parts = [self._event(event) for event in events]
        if record is not None:
            parts.append(self._running(record))
        data = b"".join(parts)
        self._next = events[0][0] if events else self._next
        if self._size and self._size + len(data) > _LARGEST_FILE:
            with contextlib.suppress(OSError):  # then this file grows
                self._begin_file()
        self._write(data)
        self._size += len(data)
        self._next += len(events)
        if record is not None:
            self._record = record

    def finish(self, record: dict[str, Any], event: Event) -> None:
        """Writes the last event and the end of the job. If the disk is full, events are deleted. Raises OSError."""
        self._next = event[0]
        last = self._event(event)
        self._write(b"".join((last, self._signature.entry(RECORD, dump({**record, LAST_SIZE: len(last)})))))
        self._file = None

    def withdraw(self) -> None:
        """Closes the file of a job that was refused."""
        self._file = None

    def give_up(self) -> None:
        """Deletes all but the fact that the job existed, which needs no room, because its end cannot be written."""
        self._remove_earlier(0)
        assert self._file is not None
        os.ftruncate(self._file.fd, 0)
        self._file = None

    def _write(self, data: bytes) -> None:
        try:
            self._add(data)
        except OSError:
            self._drop_events()
            self._add(data)

    def _add(self, data: bytes) -> None:
        """Writes all of the data or nothing."""
        file = self._file
        assert file is not None
        size = os.fstat(file.fd).st_size
        try:
            write_all(file.fd, data)
        except OSError:
            os.ftruncate(file.fd, size)
            raise

    def _drop_events(self) -> None:
        """Deletes the events that have been written. Their readers go on in another file, if there is room for it."""
        assert self._file is not None
        self._remove_earlier(0)
        os.ftruncate(self._file.fd, self._begins)
        with contextlib.suppress(OSError):
            self._add(self._running(self._record))
            if self._size:
                self._begin_file()
        self._remove_earlier(0)
        self._size = 0

    def _begin_file(self) -> None:
        """Gives the file the name of its first event as well, and replaces it by a new one with the record."""
        with self._root.open() as folder:
            name = f"{self.id}.{self._first}"
            folder.remove_tree(name)  # a cell may have made it
            folder.link(self.id, name)
            earlier = {**self._earlier, self._first: self._size}
            record = {**self._record, FILES: [*earlier, self._next]}
            file, new = self._make_file(folder, self._running(record))
            folder.rename(new, self.id)
        self._file, self._earlier, self._first, self._size = file, earlier, self._next, 0
        self._remove_earlier(_MOST_EVENTS)

    def _make_file(self, folder: Place, data: bytes) -> tuple[_OpenFile, str]:
        """Returns a new file with the data, and its name, which is unique."""
        new = f"{self.id}.{os.getpid()}-{os.urandom(3).hex()}{UNFINISHED}"
        file = _OpenFile(folder.open_for_writing(new, os.O_APPEND | os.O_EXCL))
        try:
            write_all(file.fd, data)
        except OSError:
            folder.remove(new)
            raise
        self._begins = len(data)
        return file, new

    def _remove_earlier(self, most: int) -> None:
        """Deletes the oldest events that are in other files, until the others have at most so many bytes."""
        with contextlib.suppress(OSError), self._root.open() as folder:
            while sum(self._earlier.values()) > most:
                oldest = next(iter(self._earlier))
                del self._earlier[oldest]
                with contextlib.suppress(FileNotFoundError):
                    folder.remove(f"{self.id}.{oldest}")

    def _event(self, event: Event) -> bytes:
        number, kind, data = event
        return self._signature.entry(f"{EVENTS}{number} {kind}", data)

    def _running(self, record: dict[str, Any]) -> bytes:
        return self._signature.entry(RECORD, dump({"server": _this_process(), FILES: _FIRST_FILE, **record}))


def is_running(job_id: str, server: object) -> bool:
    """Tells whether the server that a record names goes on to write the job."""
    if server == _this_process():
        with _naming:
            entry = _here.get(job_id)
        return entry is not None and entry.is_open
    match server:
        case {"pid": int(pid), "start_time": int(start_time), "boot_id": str(boot)}:
            return ProcessIdentity(pid, start_time, boot).alive
    return False


def _this_process() -> dict[str, Any]:
    return _describe_process(os.getpid())


@functools.cache
def _describe_process(pid: int) -> dict[str, Any]:
    """Describes this process, whose pid a fork does not share."""
    own = ProcessIdentity.own()
    return {"pid": own.pid, "start_time": own.start_time, "boot_id": own.boot_id}
