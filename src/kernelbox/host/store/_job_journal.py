"""The journal keeps the jobs of all servers of a home as files, so that every server can report on every job.

    jobs/ID/job             the request, the server that runs it, and at the end why there is no result, as JSON; then
                            the result as JSON of any length, which is never parsed here
    jobs/ID/events-N        events from number N on, each with its number, its kind, and JSON
    jobs/ID/answer-REQUEST  an answer to an approval request, from another server than the one that runs the job

Only the server that runs a job writes its record and its events. The last megabytes of events are kept. Everything is
signed (host/files/_signed.py): cells can write to the files, and unsigned text is ignored.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import time

from kernelbox.base._errors import EXHAUSTED, StoreFailed
from kernelbox.base._owning import Owner
from kernelbox.host.files._home import Inside
from kernelbox.host.files._pinned import Pinned
from kernelbox.host.files._place import write_all
from kernelbox.host.files._signed import Signature
from kernelbox.host.process._process import ProcessIdentity
from kernelbox.host.store._job_follower import EVENTS, Follower
from kernelbox.wire._json import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kernelbox.host.files._home import Home
    from kernelbox.host.files._place import Place

_FOLDER = "jobs"
_RECORD = "job"
_RESULT = "result"
_ANSWER = "answer-"

# The most bytes of one file of events, unless a single event is larger, and of all events kept for a job.
_LARGEST_FILE = 1024 * 1024
_MOST_EVENTS = 16 * _LARGEST_FILE

# How long ended jobs are kept, and how many. A client asks for a job that it has just lost, not for last week's.
_KEPT_FOR = 24 * 3600.0
_MOST_JOBS = 1_000

# The most directories to look at. Running jobs are not counted above, and a cell can make any number.
_MOST_LOOKED_AT = 10_000


class Journal:
    """The jobs of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._root = Pinned(Inside(home, (_FOLDER,)), f"{home.path}/{_FOLDER}", home.path)

    def claim(self, job_id: str, record: dict[str, Any]) -> JobEntry | None:
        """Begins a job that this process runs; None if there is already a job with this id."""
        try:
            return self._claim(job_id, record)
        except StoreFailed:
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, _FOLDER) from exc

    def _claim(self, job_id: str, record: dict[str, Any]) -> JobEntry | None:
        entry = JobEntry(self, job_id)
        with self._root.make() as folder:
            new = f"{job_id}.{os.getpid()}-{os.urandom(3).hex()}.new"
            folder.make(new)
            try:
                with folder.enter(new) as place:
                    entry.write_running(place, record)
                folder.rename(new, job_id)  # rename(2) replaces only empty directories
            except OSError as exc:
                folder.remove_tree(new)
                if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return None
                raise
            return entry

    def read(self, job_id: str) -> dict[str, Any] | None:
        """Returns the record of a job, if there is one; its `state` is running, done or lost."""
        try:
            with self.place(job_id) as place:
                return _read_record(self.signature(job_id).read_file(place, _RECORD, _RECORD), place)
        except (OSError, ValueError):  # it was removed meanwhile, or a cell has written to it
            return None

    def read_result(self, job_id: str) -> bytes | None:
        """Returns the result of a job as JSON; None if there is none, or if it cannot be read."""
        try:
            with self.place(job_id) as place:
                return self.signature(job_id).read_file(place, _RECORD, _RESULT)
        except (OSError, ValueError):
            return None

    def records(self) -> list[dict[str, Any]]:
        """Returns the records of running and recent jobs, oldest first."""
        found = self._read_all()
        gone = {record["id"] for record in _overdue(found)}
        return [record for record in found if record["id"] not in gone]

    def _read_all(self) -> list[dict[str, Any]]:
        found = [record for record in map(self.read, self._ids()) if record is not None]
        return sorted(found, key=lambda record: str(record.get("created_at", "")))

    def _ids(self) -> list[str]:
        try:
            with self._root.open() as folder:
                return [name for name in folder.listdir() if not name.endswith(".new")][:_MOST_LOOKED_AT]
        except FileNotFoundError:
            return []

    def follow(self, job_id: str, after: int) -> Follower:
        """Returns a reader of a job's events after number `after`."""
        return Follower(lambda: self.place(job_id), self.signature(job_id), after)

    def answer(self, job_id: str, request_id: str, answer: dict[str, Any]) -> bool:
        """Leaves an answer for the server that runs a job; False if there already is one."""
        with self.place(job_id) as place:
            name = f"{_ANSWER}{request_id}"
            return place.add(name, self.signature(job_id).sign(name, dump(answer)))

    def answers(self, job_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the answers that other servers have left, and removes them."""
        with contextlib.suppress(OSError), self.place(job_id) as place:
            for name in place.listdir():
                if name.startswith(_ANSWER) and not name.endswith(".new"):
                    with contextlib.suppress(OSError, ValueError):  # a cell has made it
                        answer = self.signature(job_id).read_file(place, name, name)
                        yield name.removeprefix(_ANSWER), json.loads(answer)
                    place.remove_tree(name)

    def remove(self, job_id: str) -> None:
        with contextlib.suppress(OSError), self._root.open() as folder:
            folder.remove_tree(job_id)

    def sweep(self) -> None:
        """Removes jobs that ended long ago, the oldest if there are too many, and entries that are not jobs."""
        with contextlib.suppress(OSError), self._root.open() as folder:
            folder.remove_rubbish()
            for name in self._ids():
                if time.time() - folder.stat(name).st_mtime > _KEPT_FOR and self._is_without_record(folder, name):
                    folder.remove_tree(name)
        for record in _overdue(self._read_all()):
            self.remove(record["id"])

    def _is_without_record(self, folder: Place, name: str) -> bool:
        """Tells whether an entry has no signed record: the job was given up, or a cell has made or damaged it."""
        try:
            with folder.enter(name) as place:
                self.signature(name).read_file(place, _RECORD, _RECORD)
        except (ValueError, StoreFailed, FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # too many open files, or a failing disk: nothing is known about it
            return False
        return False

    def signature(self, job_id: str) -> Signature:
        """Returns the signature that hosts put on everything about a job."""
        return Signature(self._home.secret(), f"job {job_id}")

    def place(self, job_id: str) -> Place:
        with self._root.open() as folder:
            return folder.enter(job_id)


class _Events(Owner):
    """An open file of events. It is closed when nobody uses it any more, even if a thread is still writing to it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class JobEntry(Owner):
    """A job that this process runs: writes its events, and at the end its record. It holds one file of events open."""

    def __init__(self, journal: Journal, job_id: str) -> None:
        self.id = job_id
        self.last = 0
        self._journal = journal
        self._signature = journal.signature(job_id)
        self._events: _Events | None = None
        self._sizes: dict[int, int] = {}  # bytes of each file of events, by its first event
        self._first = 0

    def append(self, kind: str, event: bytes) -> int:
        """Writes an event, which is JSON, and returns its number. It starts on a new line even after text of a cell.

        If the disk is full, earlier events of the job are deleted; raises OSError if that is not enough.
        """
        self.last += 1
        data = b"".join((b"\n", self._signature.sign(f"{EVENTS}{self.last} {kind}", event)))
        try:
            self._add(data)
        except OSError as exc:
            if exc.errno in EXHAUSTED:  # deleting does not help
                raise
            self._drop_events()
            self._add(data)
        return self.last

    def _add(self, data: bytes) -> None:
        events = self._events
        if events is None or self._sizes[self._first] + len(data) > _LARGEST_FILE:
            events = self._begin_file()
        write_all(events.fd, data)
        self._sizes[self._first] += len(data)

    def _drop_events(self) -> None:
        self._events = None
        with self._journal.place(self.id) as place:
            for first in self._sizes:
                with contextlib.suppress(FileNotFoundError):
                    place.remove(f"{EVENTS}{first}")
        self._sizes.clear()

    def update(self, record: dict[str, Any]) -> None:
        """Writes the record of the job while it runs; raises OSError, and then the earlier one stays."""
        with self._journal.place(self.id) as place:
            self.write_running(place, record)

    def write_running(self, place: Place, record: dict[str, Any]) -> None:
        """Writes the record into the directory of the job, which may not have its name yet."""
        place.replace(_RECORD, self._signed({**record, "server": _this_process()}))

    def finish(self, record: dict[str, Any], result: bytes | None) -> None:
        """Writes the end of the job; no event follows. If the disk is full, events are deleted. Raises OSError."""
        self._events = None
        try:
            self._write_end(record, result)
        except OSError as exc:
            if exc.errno in EXHAUSTED:  # deleting does not help
                raise
            self._drop_events()
            self._write_end(record, result)

    def _write_end(self, record: dict[str, Any], result: bytes | None) -> None:
        rest = b"" if result is None else self._signature.sign(_RESULT, result)
        with self._journal.place(self.id) as place:
            place.replace(_RECORD, b"".join((self._signed({**record, "server": None}), rest)))

    def _signed(self, record: dict[str, Any]) -> bytes:
        return self._signature.sign(_RECORD, dump(record))

    def give_up(self) -> None:
        """Deletes all but the fact that the job existed, which needs no room, because its end cannot be written."""
        self._drop_events()
        with self._journal.place(self.id) as place:
            os.close(place.open_for_writing(f"{EVENTS}{self.last}", os.O_APPEND))
            place.remove(_RECORD)

    def _begin_file(self) -> _Events:
        self._events = None
        with self._journal.place(self.id) as place:
            while sum(self._sizes.values()) > _MOST_EVENTS:
                oldest = next(iter(self._sizes))
                del self._sizes[oldest]
                with contextlib.suppress(FileNotFoundError):
                    place.remove(f"{EVENTS}{oldest}")
            self._first = self.last
            place.remove_tree(f"{EVENTS}{self._first}")  # a cell may have made it
            events = self._events = _Events(place.open_for_writing(f"{EVENTS}{self._first}", os.O_APPEND))
            self._sizes[self._first] = 0
            return events


def _overdue(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the jobs that ended too long ago to be kept, and the oldest if there are too many."""
    ended = [record for record in records if record["state"] != "running"]
    surplus, since = max(0, len(ended) - _MOST_JOBS), time.time() - _KEPT_FOR
    return [record for number, record in enumerate(ended) if number < surplus or record["changed_at"] < since]


def _read_record(data: bytes, place: Place) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(data)
    record["changed_at"] = place.stat(_RECORD).st_mtime
    server = record.pop("server", None)
    if record.get("state") == "running" and not _is_alive(server):
        record["state"] = "lost"
    return record


def _this_process() -> dict[str, Any]:
    return _describe_process(os.getpid())


@functools.cache
def _describe_process(pid: int) -> dict[str, Any]:
    """Describes this process, whose pid a fork does not share."""
    own = ProcessIdentity.own()
    return {"pid": own.pid, "start_time": own.start_time, "boot_id": own.boot_id}


def _is_alive(server: object) -> bool:
    match server:
        case {"pid": int(pid), "start_time": int(start_time), "boot_id": str(boot)}:
            return ProcessIdentity(pid, start_time, boot).alive
    return False
