"""The journal keeps the jobs of all servers of a home as files, so that every server can report on every job.

    jobs/ID                 the job: records, of which the last counts, and numbered events
    jobs/ID.N               earlier events of a job that writes much, from event N on
    jobs/ID.answer-REQUEST  an answer to an approval request, from another server than the one that runs the job

A record has the request, the server that runs the job, and at the end why there is no result; else the event before it
has the result, of any length, which is never parsed here. Only the server that runs a job writes its file. The last
megabytes of events are kept. Everything is signed (host/files/_signed.py): cells can write to the files, and unsigned
text is ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from kernelbox.base._errors import StoreFailed, is_exhausted
from kernelbox.host.files._home import Inside
from kernelbox.host.files._pinned import Pinned
from kernelbox.host.files._signed import Signature
from kernelbox.host.store._job_entry import EVENTS, FILES, LAST_SIZE, RECORD, RESULT, JobEntry, is_running
from kernelbox.host.store._job_follower import Follower
from kernelbox.wire._json import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelbox.host.files._home import Home
    from kernelbox.host.files._place import Place

_FOLDER = "jobs"

# How long ended jobs are kept, and how many. A client asks for a job that it has just lost, not for last week's.
_KEPT_FOR = 24 * 3600.0
_MOST_JOBS = 1_000

# The most names to look at. Running jobs are not counted above, and a cell can make any number.
_MOST_LOOKED_AT = 10_000


class Journal:
    """The jobs of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._root = Pinned(Inside(home, (_FOLDER,)), f"{home.path}/{_FOLDER}", home.path)

    def claim(self, job_id: str, record: dict[str, Any]) -> JobEntry | None:
        """Begins a job that this process runs; None if there is already a job with this id."""
        entry = JobEntry(self._root, self.signature(job_id), job_id)
        try:
            with self._root.make() as folder:
                return entry if entry.begin(folder, record) else None
        except StoreFailed:
            raise
        except OSError as exc:
            raise StoreFailed.because(exc, _FOLDER) from exc

    def read(self, job_id: str) -> dict[str, Any] | None:
        """Returns the record of a job, if there is one; its `state` is running, done or lost.

        Raises StoreFailed, as `read_result` does, while no file can be opened: then nothing is known about the job.
        """
        try:
            with self.folder() as folder:
                return self._read(folder, job_id)
        except (OSError, ValueError) as exc:  # it was removed meanwhile, or a cell has written to it
            _require_resources(exc)
            return None

    def _read(self, folder: Place, job_id: str) -> dict[str, Any]:
        record = self._read_as_it_is(folder, job_id)
        if record.get("state") == "running" and not is_running(job_id, record.get("server")):
            record = self._read_as_it_is(folder, job_id)  # it may just have ended
            if record.get("state") == "running":
                record["state"] = "lost"
        for name in (FILES, LAST_SIZE, "server"):
            record.pop(name, None)
        return record

    def _read_as_it_is(self, folder: Place, job_id: str) -> dict[str, Any]:
        fd = folder.open_for_reading(job_id)
        try:
            record, _ = _last_record(fd, self.signature(job_id))
            record["changed_at"] = os.fstat(fd).st_mtime
        finally:
            os.close(fd)
        return record

    def read_result(self, job_id: str) -> bytes | None:
        """Returns the result of a job as JSON; None if there is none, or if it cannot be read."""
        signature = self.signature(job_id)
        try:
            with self.folder() as folder:
                fd = folder.open_for_reading(job_id)
            try:
                record, begins = _last_record(fd, signature)
                event = signature.read_entry(fd, begins - record[LAST_SIZE], f"{EVENTS}{record['last']} result")
            finally:
                os.close(fd)
        except (OSError, ValueError, KeyError) as exc:
            _require_resources(exc)
            return None
        return None if event is None else event[len(RESULT) : -1]

    def records(self) -> list[dict[str, Any]]:
        """Returns the records of running and recent jobs, oldest first."""
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError), self._root.open() as folder:
            names = [name for name in folder.listdir() if "." not in name][:_MOST_LOOKED_AT]
        found = [record for record in map(self.read, names) if record is not None]
        found.sort(key=lambda record: str(record.get("created_at", "")))
        ended = [record for record in found if record["state"] != "running"]
        surplus, since = max(0, len(ended) - _MOST_JOBS), time.time() - _KEPT_FOR
        gone = {record["id"] for at, record in enumerate(ended) if at < surplus or record["changed_at"] < since}
        return [record for record in found if record["id"] not in gone]

    def follow(self, job_id: str, after: int) -> Follower:
        """Returns a reader of a job's events after number `after`."""
        return Follower(self.folder, job_id, self.signature(job_id), after)

    def answer(self, job_id: str, request_id: str, answer: dict[str, Any]) -> bool:
        """Leaves an answer for the server that runs a job; False if there already is one."""
        with self.folder() as folder:
            name = _answer_to(job_id, request_id)
            return folder.add(name, self.signature(job_id).sign(name, dump(answer)))

    def take_answer(self, job_id: str, request_id: str) -> dict[str, Any] | None:
        """Returns the answer that another server has left to a request, if there is one, and removes it."""
        name = _answer_to(job_id, request_id)
        try:
            with self.folder() as folder:
                answer = self._read_answer(folder, job_id, name)
                folder.remove_tree(name)
        except OSError:  # there is none yet, or no file can be opened: the answer must stay
            return None
        return answer

    def _read_answer(self, folder: Place, job_id: str, name: str) -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = json.loads(self.signature(job_id).read_file(folder, name, name))
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as exc:  # a cell has made it
            _require_resources(exc)
            return None
        return answer

    def withdraw(self, entry: JobEntry) -> None:
        """Removes a job that was refused before it began, and so has no other file."""
        with contextlib.suppress(OSError), self._root.open() as folder:
            folder.remove_tree(entry.id)
        entry.withdraw()

    def sweep(self) -> None:
        """Removes jobs that ended long ago, the oldest if there are too many, and entries that are not jobs.

        The times of the files tell which to read: those of the others would take as long as a hundred requests.
        """
        with contextlib.suppress(OSError), self._root.open() as folder:
            folder.remove_rubbish()
            files = _by_age(folder)
            surplus, since = sum("." not in name for _, name in files) - _MOST_JOBS, time.time() - _KEPT_FOR
            kept, removed = {name for _, name in files}, set()
            for changed_at, name in files:
                is_old = changed_at <= since
                if (surplus > 0 or is_old) and "." not in name and self._is_over(folder, name, is_old=is_old):
                    folder.remove_tree(name)
                    removed.add(name)
                    surplus -= 1
            for changed_at, name in files:
                job_id, dot, _ = name.partition(".")
                if dot and (job_id in removed or (changed_at <= since and job_id not in kept)):
                    folder.remove_tree(name)

    def _is_over(self, folder: Place, name: str, *, is_old: bool) -> bool:
        """Tells whether a job has ended; one without a record may be about to be looked at, until it is old."""
        try:
            return bool(self._read(folder, name)["state"] != "running")
        except (ValueError, StoreFailed, FileNotFoundError):  # it was given up, or a cell has made or damaged it
            return is_old
        except OSError:  # too many open files, or a failing disk: nothing is known about it
            return False

    def signature(self, job_id: str) -> Signature:
        """Returns the signature that hosts put on everything about a job."""
        return Signature(self._home.secret(), f"job {job_id}")

    def folder(self) -> Place:
        return self._root.open()


def _last_record(fd: int, signature: Signature) -> tuple[dict[str, Any], int]:
    """Returns the last record in the file of a job, and where it begins; raises ValueError if there is none.

    Ended jobs have it at the end of the file. The other files are short.
    """
    found = signature.last_entry(fd, RECORD)
    if found is None:
        for what, begins in signature.walk(fd):
            if what == RECORD and (data := signature.read_entry(fd, begins, what)) is not None:
                found = data, begins
    if found is None:
        raise ValueError("its signature is not valid")
    return json.loads(found[0]), found[1]


def _require_resources(exc: Exception) -> None:
    """Raises StoreFailed for an error that says nothing about the files of a job."""
    if isinstance(exc, StoreFailed) and is_exhausted(exc):
        raise exc
    if isinstance(exc, OSError) and is_exhausted(exc):
        raise StoreFailed.because(exc, _FOLDER, "read") from exc


def _by_age(folder: Place) -> list[tuple[float, str]]:
    """Returns when the files of a directory were last changed, and their names, oldest first."""
    found = []
    for name in folder.listdir(_MOST_LOOKED_AT):
        with contextlib.suppress(FileNotFoundError):
            found.append((folder.stat(name).st_mtime, name))
    return sorted(found)


def _answer_to(job_id: str, request_id: str) -> str:
    return f"{job_id}.answer-{request_id}"
