"""Has a thread write what comes of a job, so that a disk that hangs holds up no other request."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from kernelbox.shells._asyncio_connection import in_thread

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from typing import Any

    from kernelbox.host.store._job_entry import Event, JobEntry

_log = logging.getLogger("kernelbox.server")

# Seconds in which events are gathered. Short jobs are over sooner, so a thread is woken twice for each: when it begins,
# and when it ends.
_GATHERED_FOR = 0.02

# The most bytes of a write, unless a single event is larger, and of all events that wait for a slow disk.
_MOST_AT_ONCE = 256 * 1024
_MOST_WAITING = 16 * 1024 * 1024


class JobWriter:
    """Writes the events and the records of a job that this process runs. Followers take recent events from here."""

    def __init__(self, entry: JobEntry, threads: Executor | None) -> None:
        self.last = 0  # the number of the last event
        self._entry = entry
        self._threads = threads
        self._events: deque[Event] = deque()  # those that are not in the file for certain
        self._size = 0
        self._record: dict[str, Any] | None = None  # the record, if it is not in the file yet
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_complete = True

    def append(self, kind: str, event: bytes) -> None:
        """Adds an event, which is written soon; none follows the last."""
        if self._is_over:
            return
        self.last += 1
        self._events.append((self.last, kind, event))
        self._size += len(event)
        while self._size > _MOST_WAITING and len(self._events) > 1:
            self._forget_first()
        self._write_soon()

    def update(self, record: dict[str, Any]) -> None:
        """Takes the record of the job while it runs."""
        self._record = record
        self._write_soon()

    def recent(self, after: int) -> list[Event]:
        """Returns the events after one, if none of them is only in the file."""
        if not self._events or (first := self._events[0][0]) > after + 1:
            return []
        return list(islice(self._events, after + 1 - first, None))

    async def finish(self, outcome: dict[str, Any], kind: str, event: bytes) -> None:
        """Writes the last event and the end of the job, and returns when they are written, as far as possible."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        last = (self.last + 1, kind, event)
        await in_thread(self._write_end, list(self._events), outcome, last, pool=self._threads)
        self._events.append(last)
        self.last += 1

    def _write_soon(self) -> None:
        if self._writing is not None:
            return
        if self._size > _MOST_AT_ONCE:
            self._begin_writing()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHERED_FOR, self._begin_writing)

    def _begin_writing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._writing = asyncio.ensure_future(self._write_waiting())

    async def _write_waiting(self) -> None:
        try:
            while self._events or self._record is not None:
                events, record = self._take_some(), self._record
                self._record = None
                await in_thread(self._write, events, record, pool=self._threads)
                while events and self._events and self._events[0][0] <= events[-1][0]:
                    self._forget_first()
        finally:
            self._writing = None

    def _take_some(self) -> list[Event]:
        events: list[Event] = []
        size = 0
        for event in self._events:
            size += len(event[2])
            if events and size > _MOST_AT_ONCE:
                break
            events.append(event)
        return events

    def _forget_first(self) -> None:
        self._size -= len(self._events.popleft()[2])

    # -- in a thread -------------------------------------------------------------------------------------------

    def _write(self, events: list[Event], record: dict[str, Any] | None) -> None:
        """Writes events. If that fails, the cell continues, and followers miss the events."""
        try:
            self._entry.append(events, record)
        except OSError as exc:
            self._note_failure(exc)

    def _write_end(self, events: list[Event], outcome: dict[str, Any], last: Event) -> None:
        """Writes the end of the job, or at least that there was a job: no client must wait for it."""
        self._write(events, None)
        try:
            self._entry.finish(outcome, last)
        except OSError as exc:
            self._note_failure(exc)
            self._entry.give_up()

    def _note_failure(self, exc: OSError) -> None:
        if self._is_complete:
            self._is_complete = False
            _log.error("some of job %s cannot be written: %s", self._entry.id, exc)
