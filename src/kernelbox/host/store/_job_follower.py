"""A follower reads the events of a job from the files of a journal as they are written."""

from __future__ import annotations

import contextlib
import json
import os

from kernelbox.base._unique_objects import Owner, identify
from kernelbox.host.files._signed import LONGEST_HEAD, new_hash
from kernelbox.host.store._job_entry import EVENTS, FILES, RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelbox.host.files._place import Place
    from kernelbox.host.files._signed import Head, Signature

    Json = bytes | bytearray

# Bytes to read at a time. A slow client must not fill the memory, and others are served in between.
_PIECE = 64 * 1024

# The most unsigned bytes to skip, since a cell can make a file of any length. A line counts as much as a head at least,
# because it takes as long.
_MOST_PLANTED = 16 * 1024 * 1024


class Follower(Owner):
    """Reads the events of a job in order. If some were already deleted, `read` says which.

    `is_behind` tells whether there may be more to read at once. `is_damaged` becomes true, and reading stops, when too
    much of the files is unsigned.
    """

    def __init__(self, folder: Callable[[], Place], job_id: str, signature: Signature, after: int) -> None:
        self.after = after
        self.is_behind = False
        self.is_damaged = False
        self._folder = folder
        self._job_id = job_id
        self._signature = signature
        self._fd = -1
        self._first = 0
        self._rest = bytearray()
        self._head: Head | None = None
        self._hash, self._hashed = new_hash(), 0  # over the part of the current event that has been read
        self._blank_is_due = True
        self._seen = 0
        self._planted = 0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self) -> list[tuple[int, str, Json]]:
        """Returns the next few events, each as number, kind and JSON."""
        self.is_behind = not self.is_damaged and (self._fd >= 0 or self._open_next()) and self._read_piece()
        return list(self._take()) if self.is_behind else []

    def _read_piece(self) -> bool:
        """Reads the next bytes; returns whether there were any, or there is another file."""
        data = os.read(self._fd, _PIECE)
        if not data:
            if not self._has_next():
                return False
            data = os.read(self._fd, _PIECE)  # written before the next file was begun
            if not data:
                self.close()
        self._rest += data
        return True

    def _take(self) -> Iterator[tuple[int, str, Json]]:
        for number, kind, event in self._whole_events():
            if number > self.after:
                if number > self.after + 1:
                    yield self._missing(number)
                self.after = number
                yield number, kind, event

    def _whole_events(self) -> Iterator[tuple[int, str, Json]]:
        """Yields the events that have been read completely."""
        while (head := self._head or self._next_head()) is not None:
            self._hash_on(head)
            if len(self._rest) < head.length:
                self._head = head
                return
            self._head, is_whole = None, head.is_of(self._hash)
            self._hash, self._hashed = new_hash(), 0
            if is_whole and head.what == RECORD:
                self._blank_is_due = True
                self._skip(0)
                del self._rest[: head.length]
            elif is_whole:
                self._blank_is_due = True
                self._seen, kind = _parse(head)
                yield self._seen, kind, self._cut_off(head.length)
            else:
                self._skip(head.length)  # the text stays: there may be heads in it

    def _hash_on(self, head: Head) -> None:
        """Hashes an event piece by piece. Hashing a long one at once would block everyone."""
        with memoryview(self._rest) as rest:
            self._hash.update(rest[self._hashed : head.length])
        self._hashed = min(len(self._rest), head.length)

    def _cut_off(self, length: int) -> Json:
        """Takes an event out of the buffer. A long one, which is most of it, is not copied."""
        if 2 * length >= len(self._rest):
            tail = self._rest[length:]
            del self._rest[length:]
            data, self._rest = self._rest, tail
            return data
        beginning = bytes(self._rest[:length])
        del self._rest[:length]
        return beginning

    def _next_head(self) -> Head | None:
        """Takes lines until one is the head of a later event; None if there is none yet."""
        while not self.is_damaged:
            end = self._rest.find(b"\n", 0, LONGEST_HEAD)
            if end < 0 and len(self._rest) < LONGEST_HEAD:
                return None
            if end < 0:  # longer than any head
                end = self._rest.find(b"\n", LONGEST_HEAD)
                end = len(self._rest) if end < 0 else end
            line = bytes(self._rest[: min(end, LONGEST_HEAD)])
            del self._rest[: end + 1]
            if not line and self._blank_is_due:
                self._blank_is_due = False
                continue  # a blank line comes before every head
            head = self._signature.read_head(line)
            if head is not None and (head.what == RECORD or _parse(head)[0] > self._seen):
                return head
            self._skip(end)
        return None

    def _skip(self, length: int) -> None:
        self._planted += max(length, LONGEST_HEAD)
        self.is_damaged = self._planted > _MOST_PLANTED

    def _missing(self, next_number: int) -> tuple[int, str, Json]:
        missing = {"first": self.after + 1, "last": next_number - 1}
        return next_number - 1, "dropped", json.dumps(missing).encode("ascii")

    def _has_next(self) -> bool:
        """Tells whether another file has taken the place of the one that is read."""
        try:
            with self._folder() as folder:
                info = folder.stat(self._job_id)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) != identify(self._fd)

    def _open_next(self) -> bool:
        """Opens the file with the next event, or the oldest file; False if there is none yet."""
        with contextlib.suppress(OSError), self._folder() as folder:
            newest = folder.open_for_reading(self._job_id)
            try:
                self._open_later(folder, newest)
            finally:
                if self._fd != newest:
                    os.close(newest)
        return self._fd >= 0

    def _open_later(self, folder: Place, newest: int) -> None:
        record = self._signature.read_entry(newest, 0, RECORD)
        firsts = [] if record is None else json.loads(record)[FILES]
        later = [first for first in firsts if first > self._first]
        begun = [first for first in later if first <= self.after + 1]
        for first in later[max(0, len(begun) - 1) :]:
            with contextlib.suppress(FileNotFoundError):  # it was too old to be kept
                self._fd = newest if first == firsts[-1] else folder.open_for_reading(f"{self._job_id}.{first}")
                self._first = first
                self._rest, self._head, self._blank_is_due, self._seen = bytearray(), None, True, first - 1
                self._hash, self._hashed = new_hash(), 0
                return


def _parse(head: Head) -> tuple[int, str]:
    number, _, kind = head.what.removeprefix(EVENTS).partition(" ")
    return int(number), kind
