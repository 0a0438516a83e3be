"""The journal: jobs of all servers on a home, as files, so that each of them can tell of every job.

    jobs/ID/job             what was asked, by which server, and in the end why there is no result, as JSON
    jobs/ID/result          the result, as JSON, which may have any length and is never read here
    jobs/ID/events-N        events from number N on: of each its number, its kind, and JSON
    jobs/ID/answer-REQUEST  an answer to an approval request that came to another server than the job's own

Only the server that runs a job writes its record and its events. Of the events the last megabytes are kept. All is
signed (host/files/_signed.py): cells can write to the files, and what they write there is passed over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time

from kernelbox.base._errors import StoreFailed
from kernelbox.host.files._home import Inside
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

# Bytes of one file of events, unless one event is larger, and of all that are kept of a job.
_LARGEST_FILE = 1024 * 1024
_MOST_EVENTS = 16 * _LARGEST_FILE

# How long an ended job is kept, and how many: a client asks for what it has just lost, not for last week's.
_KEPT_FOR = 24 * 3600.0
_MOST_JOBS = 1_000

# Directories that are looked at: jobs that run come to those that are kept, and a cell can make any number.
_MOST_LOOKED_AT = 10_000


class Journal:
    """The jobs of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._root = Inside(home, (_FOLDER,))

    def __repr__(self) -> str:
        return f"<Journal in {self._home!r}>"

    def claim(self, job_id: str, record: dict[str, Any]) -> JobEntry | None:
        """Begins a job, which is this process's own from now on; None if there is a job of this id."""
        try:
            return self._claim(job_id, record)
        except StoreFailed:
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, _FOLDER) from exc

    def _claim(self, job_id: str, record: dict[str, Any]) -> JobEntry | None:
        with self._folder(make=True) as folder:
            new = f"{job_id}.{os.getpid()}-{os.urandom(3).hex()}.new"
            folder.make(new)
            with folder.enter(new) as place:
                running = {**record, "server": _this_process()}
                place.replace(_RECORD, self.signature(job_id).sign(_RECORD, dump(running)))
            try:
                folder.rename(new, job_id)  # rename(2) replaces no directory that has something in it
            except OSError as exc:
                folder.remove_tree(new)
                if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return None
                raise
            return JobEntry(self, job_id)

    def read(self, job_id: str) -> dict[str, Any] | None:
        """Returns the record of a job, None if there is none; its `state` is running, done or lost."""
        try:
            with self._folder() as folder, folder.enter(job_id) as place:
                return _read_record(self.signature(job_id).read_file(place, _RECORD, _RECORD), place)
        except (OSError, ValueError):  # it has been removed meanwhile, or a cell has written to it
            return None

    def read_result(self, job_id: str) -> bytes | None:
        """Returns the result of a job as JSON; None if there is none, or a cell has written to it."""
        try:
            with self.place(job_id) as place:
                return self.signature(job_id).read_file(place, _RESULT, _RESULT)
        except (OSError, ValueError):
            return None

    def records(self) -> list[dict[str, Any]]:
        """Returns the records of the jobs that run, and of those that are kept, oldest first."""
        found = self._read_all()
        gone = {record["id"] for record in _overdue(found)}
        return [record for record in found if record["id"] not in gone]

    def _read_all(self) -> list[dict[str, Any]]:
        found = [record for record in map(self.read, self._ids()) if record is not None]
        return sorted(found, key=lambda record: str(record.get("created_at", "")))

    def _ids(self) -> list[str]:
        try:
            with self._folder() as folder:
                return [name for name in folder.listdir() if not name.endswith(".new")][:_MOST_LOOKED_AT]
        except FileNotFoundError:
            return []

    def follow(self, job_id: str, after: int) -> Follower:
        """Returns a reader of the events of a job that come after one."""
        return Follower(lambda: self.place(job_id), self.signature(job_id), after)

    def answer(self, job_id: str, request_id: str, answer: dict[str, Any]) -> bool:
        """Leaves an answer for the server that runs a job; False if there is one."""
        with self._folder() as folder, folder.enter(job_id) as place:
            name = f"{_ANSWER}{request_id}"
            return place.add(name, self.signature(job_id).sign(name, dump(answer)))

    def answers(self, job_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the answers that other servers have left, each once."""
        with contextlib.suppress(OSError), self._folder() as folder, folder.enter(job_id) as place:
            for name in place.listdir():
                if name.startswith(_ANSWER) and not name.endswith(".new"):
                    with contextlib.suppress(OSError, ValueError):  # a cell has put it there
                        yield name.removeprefix(_ANSWER), self._read_answer(job_id, place, name)
                    place.remove_tree(name)

    def _read_answer(self, job_id: str, place: Place, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.signature(job_id).read_file(place, name, name))
        return answer

    def remove(self, job_id: str) -> None:
        """Removes all that is known of a job."""
        with contextlib.suppress(OSError), self._folder() as folder:
            folder.remove_tree(job_id)

    def sweep(self) -> None:
        """Removes jobs that ended long ago, the oldest of too many, and what is no job."""
        with contextlib.suppress(OSError), self._folder() as folder:
            folder.remove_rubbish()
            for name in self._ids():
                if time.time() - folder.stat(name).st_mtime > _KEPT_FOR and self._is_without_record(folder, name):
                    folder.remove_tree(name)
        for record in _overdue(self._read_all()):
            self.remove(record["id"])

    def _is_without_record(self, folder: Place, name: str) -> bool:
        """Tells whether an entry has no record of ours: it was given up, or a cell has damaged it or made it."""
        try:
            with folder.enter(name) as place:
                self.signature(name).read_file(place, _RECORD, _RECORD)
        except (ValueError, StoreFailed, FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # we have too much open, or the disk fails: nothing is known of it
            return False
        return False

    def signature(self, job_id: str) -> Signature:
        """Returns what tells a host's words about a job from others."""
        return Signature(self._home.secret(), f"job {job_id}")

    def place(self, job_id: str) -> Place:
        """Opens the directory of a job."""
        with self._folder() as folder:
            return folder.enter(job_id)

    def _folder(self, *, make: bool = False) -> Place:
        return self._root.make() if make else self._root.open()


class JobEntry:
    """A job of this process: takes its events, and in the end its record."""

    def __init__(self, journal: Journal, job_id: str) -> None:
        self.id = job_id
        self.last = 0
        self._journal = journal
        self._signature = journal.signature(job_id)
        self._fd = -1
        self._sizes: dict[int, int] = {}  # bytes of each file of events that is kept, by its first event
        self._first = 0

    def __repr__(self) -> str:
        return f"<JobEntry {self.id} {self.last} events>"

    def append(self, kind: str, event: bytes) -> int:
        """Writes an event, which is JSON, on a line of its own, whatever a cell has written; returns its number.

        Where the disk is full the earlier events of the job make room; raises OSError if that is not enough.
        """
        self.last += 1
        data = b"".join((b"\n", self._signature.sign(f"{EVENTS}{self.last} {kind}", event)))
        try:
            self._add(data)
        except OSError:
            self._drop_events()
            self._add(data)
        return self.last

    def _add(self, data: bytes) -> None:
        if self._fd < 0 or self._sizes[self._first] + len(data) > _LARGEST_FILE:
            self._begin_file()
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self._sizes[self._first] += len(data)

    def _drop_events(self) -> None:
        self._close_file()
        with self._journal.place(self.id) as place:
            for first in self._sizes:
                with contextlib.suppress(FileNotFoundError):
                    place.remove(f"{EVENTS}{first}")
        self._sizes.clear()

    def update(self, record: dict[str, Any]) -> None:
        """Writes what is known of the job while it runs."""
        self._write({**record, "server": _this_process()})

    def finish(self, record: dict[str, Any], result: bytes | None) -> None:
        """Writes what came of the job; no event follows. Events make room for it; raises OSError if it needs more."""
        self._close_file()
        try:
            self._write_end(record, result)
        except OSError:
            self._drop_events()
            self._write_end(record, result)

    def _write_end(self, record: dict[str, Any], result: bytes | None) -> None:
        if result is not None:
            with self._journal.place(self.id) as place:
                place.replace(_RESULT, self._signature.sign(_RESULT, result))
        self._write({**record, "server": None})

    def _write(self, record: dict[str, Any]) -> None:
        with self._journal.place(self.id) as place:
            place.replace(_RECORD, self._signature.sign(_RECORD, dump(record)))

    def give_up(self) -> None:
        """Leaves of the job only that there was one, which needs no room: what came of it cannot be written."""
        self._drop_events()
        with self._journal.place(self.id) as place:
            os.close(place.open_for_writing(f"{EVENTS}{self.last}", os.O_APPEND))
            place.remove(_RECORD)
            with contextlib.suppress(FileNotFoundError):
                place.remove(_RESULT)

    def discard(self) -> None:
        """Removes the job, as if it had never been."""
        self._close_file()
        self._journal.remove(self.id)

    def _begin_file(self) -> None:
        self._close_file()
        with self._journal.place(self.id) as place:
            while sum(self._sizes.values()) > _MOST_EVENTS:
                oldest = next(iter(self._sizes))
                del self._sizes[oldest]
                with contextlib.suppress(FileNotFoundError):
                    place.remove(f"{EVENTS}{oldest}")
            self._first = self.last
            place.remove_tree(f"{EVENTS}{self._first}")  # what a cell has put there
            self._fd = place.open_for_writing(f"{EVENTS}{self._first}", os.O_APPEND)
            self._sizes[self._first] = 0

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _overdue(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the jobs that ended too long ago to be kept, and the oldest of too many."""
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
    own = ProcessIdentity.own()
    return {"pid": own.pid, "start_time": own.start_time, "boot_id": own.boot_id}


def _is_alive(server: object) -> bool:
    match server:
        case {"pid": int(pid), "start_time": int(start_time), "boot_id": str(boot)}:
            return ProcessIdentity(pid, start_time, boot).alive
    return False
