"""The journal: jobs of all servers on a home, as files, so that each of them can tell of every job.

    jobs/ID/job             what was asked, by which server, and in the end what came of it, as JSON
    jobs/ID/events-N        events from number N on, a line for each: its number, its kind, and JSON
    jobs/ID/answer-REQUEST  an answer to an approval request that came to another server than the job's own

Only the server that runs a job writes its record and its events. Of the events the last megabytes are kept. Each line
begins with a keyed hash: cells can write to the files, and what they write there is passed over.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import time
from functools import cached_property

from kernelbox.base._errors import StoreFailed
from kernelbox.host._process import boot_id, read_start_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kernelbox.host._home import Home
    from kernelbox.host._place import Place

_FOLDER = "jobs"
_RECORD = "job"
_EVENTS = "events-"
_ANSWER = "answer-"

# Bytes of one file of events, unless one event is larger, and of all that are kept of a job.
_LARGEST_FILE = 1024 * 1024
_MOST_EVENTS = 16 * _LARGEST_FILE

# Bytes that are read at a time: a client that reads slowly must not fill our memory.
_PIECE = 256 * 1024

# Bytes of a record, whose result may hold pictures; and of an answer.
_LARGEST_RECORD = 512 * 1024 * 1024
_LARGEST_ANSWER = 100_000

# How long an ended job is kept, and how many: a client asks for what it has just lost, not for last week's.
_KEPT_FOR = 24 * 3600.0
_MOST_JOBS = 1_000


class Journal:
    """The jobs of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def __repr__(self) -> str:
        return f"<Journal in {self._home!r}>"

    def claim(self, job_id: str, record: dict[str, Any]) -> Entry | None:
        """Begins a job, which is this process's own from now on; None if there is a job of this id."""
        with self._folder(make=True) as folder:
            new = f"{job_id}.{os.getpid()}-{os.urandom(3).hex()}.new"
            folder.make(new)
            with folder.enter(new) as place:
                place.replace(_RECORD, self.sign(job_id, _RECORD, _to_json({**record, "server": _this_process()})))
            try:
                folder.rename(new, job_id)  # rename(2) replaces no directory that has something in it
            except OSError as exc:
                folder.remove_tree(new)
                if exc.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return None
                raise
            return Entry(self, job_id)

    def read(self, job_id: str) -> dict[str, Any] | None:
        """Returns the record of a job, None if there is none; its `state` is running, done or lost."""
        try:
            with self._folder() as folder, folder.enter(job_id) as place:
                return _read_record(self.verify(job_id, _RECORD, place.read(_RECORD, _LARGEST_RECORD)), place)
        except (OSError, ValueError):  # it has been removed meanwhile, or a cell has written to it
            return None

    def records(self) -> list[dict[str, Any]]:
        """Returns the records of all jobs, oldest first."""
        try:
            with self._folder() as folder:
                names = [name for name in folder.listdir() if not name.endswith(".new")]
        except FileNotFoundError:
            return []
        found = [record for record in map(self.read, names) if record is not None]
        return sorted(found, key=lambda record: str(record.get("created_at", "")))

    def follow(self, job_id: str, after: int) -> Follower:
        """Returns a reader of the events of a job that come after one."""
        return Follower(self, job_id, after)

    def answer(self, job_id: str, request_id: str, answer: dict[str, Any]) -> bool:
        """Leaves an answer for the server that runs a job; False if there is one."""
        with self._folder() as folder, folder.enter(job_id) as place:
            name = f"{_ANSWER}{request_id}"
            return place.add(name, self.sign(job_id, name, _to_json(answer)))

    def answers(self, job_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the answers that other servers have left, each once."""
        with contextlib.suppress(OSError), self._folder() as folder, folder.enter(job_id) as place:
            for name in place.listdir():
                if name.startswith(_ANSWER) and not name.endswith(".new"):
                    data = place.read(name, _LARGEST_ANSWER)
                    place.remove(name)
                    with contextlib.suppress(ValueError):
                        yield name.removeprefix(_ANSWER), json.loads(self.verify(job_id, name, data))

    def remove(self, job_id: str) -> None:
        """Removes all that is known of a job."""
        with contextlib.suppress(OSError), self._folder() as folder:
            folder.remove_tree(job_id)

    def sweep(self) -> None:
        """Removes jobs that ended long ago, and the oldest of too many."""
        with contextlib.suppress(OSError), self._folder() as folder:
            folder.remove_rubbish()
        ended = [record for record in self.records() if record["state"] != "running"]
        surplus = max(0, len(ended) - _MOST_JOBS)
        for number, record in enumerate(ended):
            if number < surplus or time.time() - float(record.get("changed_at", 0)) > _KEPT_FOR:
                self.remove(str(record.get("id", "")))

    def sign(self, job_id: str, what: str, data: bytes) -> bytes:
        """Returns data behind a hash that only hosts of this user can make."""
        return _digest(self._secret, job_id, what, data) + b" " + data

    def verify(self, job_id: str, what: str, signed: bytes) -> bytes:
        """Returns data without its hash; raises ValueError if no host has written it."""
        digest, _, data = signed.partition(b" ")
        if not hmac.compare_digest(digest, _digest(self._secret, job_id, what, data)):
            raise ValueError("no host has written it")
        return data

    @cached_property
    def _secret(self) -> bytes:
        return hashlib.sha256(self._home.secret()).digest()

    def place(self, job_id: str) -> Place:
        """Opens the directory of a job."""
        with self._folder() as folder:
            return folder.enter(job_id)

    @contextlib.contextmanager
    def _folder(self, *, make: bool = False) -> Iterator[Place]:
        with self._home.make() if make else self._home.open() as home, home.enter(_FOLDER, make=make) as folder:
            yield folder


class Entry:
    """A job of this process: takes its events, and in the end its record."""

    def __init__(self, journal: Journal, job_id: str) -> None:
        self.id = job_id
        self.last = 0
        self._journal = journal
        self._fd = -1
        self._sizes: dict[int, int] = {}  # bytes of each file of events that is kept, by its first event
        self._first = 0

    def __repr__(self) -> str:
        return f"<Entry {self.id} {self.last} events>"

    def append(self, kind: str, event: bytes) -> int:
        """Writes an event, which is JSON on one line; returns its number."""
        self.last += 1
        line = self._journal.sign(self.id, _EVENTS, b"%d %s %s" % (self.last, kind.encode("ascii"), event)) + b"\n"
        if self._fd < 0 or self._sizes[self._first] + len(line) > _LARGEST_FILE:
            self._begin_file()
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self._sizes[self._first] += len(line)
        return self.last

    def update(self, record: dict[str, Any]) -> None:
        """Writes what is known of the job while it runs."""
        self._write({**record, "server": _this_process()})

    def finish(self, record: dict[str, Any]) -> None:
        """Writes what came of the job; no event follows."""
        self._close_file()
        self._write({**record, "server": None})

    def _write(self, record: dict[str, Any]) -> None:
        with self._journal.place(self.id) as place:
            place.replace(_RECORD, self._journal.sign(self.id, _RECORD, _to_json(record)))

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
                    place.remove(f"{_EVENTS}{oldest}")
            self._first = self.last
            self._fd = place.open_for_writing(f"{_EVENTS}{self._first}", os.O_APPEND)
            self._sizes[self._first] = 0

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Follower:
    """Reads the events of a job, in order; where some are no longer kept, `read` says which."""

    def __init__(self, journal: Journal, job_id: str, after: int) -> None:
        self.after = after
        self._journal = journal
        self._job_id = job_id
        self._fd = -1
        self._first = 0
        self._rest = b""

    def __repr__(self) -> str:
        return f"<Follower of {self._job_id} after {self.after}>"

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self) -> list[tuple[int, str, bytes]]:
        """Returns the next events, by number, kind and JSON; nothing if there are none yet."""
        while self._fd >= 0 or self._open_next():
            if data := os.read(self._fd, _PIECE):
                if found := self._take(data):
                    return found
            elif not self._has_next():
                return []
            elif data := os.read(self._fd, _PIECE):  # written before the next was begun
                return self._take(data)
            else:
                self.close()
        return []

    def _take(self, data: bytes) -> list[tuple[int, str, bytes]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            try:
                number, kind, event = self._journal.verify(self._job_id, _EVENTS, line).split(b" ", 2)
            except ValueError:
                continue  # a cell has written it
            if int(number) > self.after:
                if int(number) > self.after + 1:
                    found.append(self._missing(int(number)))
                self.after = int(number)
                found.append((self.after, kind.decode("ascii"), event))
        return found

    def _missing(self, next_number: int) -> tuple[int, str, bytes]:
        missing = {"first": self.after + 1, "last": next_number - 1}
        return next_number - 1, "dropped", json.dumps(missing).encode("ascii")

    def _firsts(self, place: Place) -> list[int]:
        names = (name.removeprefix(_EVENTS) for name in place.listdir() if name.startswith(_EVENTS))
        return sorted(int(name) for name in names if name.isdecimal())

    def _has_next(self) -> bool:
        try:
            with self._journal.place(self._job_id) as place:
                return any(first > self._first for first in self._firsts(place))
        except OSError:
            return False

    def _open_next(self) -> bool:
        """Opens the file that the next event is in, or the oldest that is kept; False if there is none yet."""
        with contextlib.suppress(OSError, StoreFailed), self._journal.place(self._job_id) as place:
            later = [first for first in self._firsts(place) if first > self._first]
            begun = [first for first in later if first <= self.after + 1]
            if later:
                self._first = begun[-1] if begun else later[0]
                self._fd = place.open_for_reading(f"{_EVENTS}{self._first}")
                self._rest = b""
                return True
        return False


def _read_record(data: bytes, place: Place) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(data)
    record["changed_at"] = place.stat(_RECORD).st_mtime
    server = record.pop("server", None)
    if record.get("state") == "running" and not _is_alive(server):
        record["state"] = "lost"
    return record


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "start_time": read_start_time(os.getpid()), "boot_id": boot_id()}


def _is_alive(server: object) -> bool:
    match server:
        case {"pid": int(pid), "start_time": int(start_time), "boot_id": str(boot)}:
            return boot == boot_id() and read_start_time(pid) == start_time
    return False


def _digest(secret: bytes, job_id: str, what: str, data: bytes) -> bytes:
    keyed = hashlib.blake2b(key=secret, digest_size=16, person=what[:16].encode("ascii", "replace"))
    keyed.update(job_id.encode() + b"\0" + data)
    return keyed.hexdigest().encode("ascii")


def _to_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
