"""Data in files that cells can write to. Only signed data is believed.

    HASH LENGTH DIGEST WHAT, a line end, DATA

HASH is a keyed hash over the rest of its line, the head. So a reader knows how much data follows, and that a host has
written it, before it reads the data. Text that a cell has written costs no more than a line.
"""

from __future__ import annotations

import hmac
import os
from hashlib import blake2b

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.host.files._place import Place

# The most bytes of a head: two hashes, a length and a name; the longest name is that of an approval request.
LONGEST_HEAD = 512

# The most lines to look at in a file of entries. Hosts write fewer, but a cell can write any number.
_MOST_LINES = 100_000

# Bytes at the end of a file in which the last entry is looked for.
_TAIL = 16 * 1024


@dataclass(frozen=True, slots=True)
class Head:
    """What the data that follows is, and how long, according to a host."""

    what: str
    length: int
    digest: str

    def is_of(self, hashed: blake2b) -> bool:
        """Tells whether the hashed data is the data of this head."""
        return hmac.compare_digest(self.digest, hashed.hexdigest())


class Signature:
    """Signs data about one subject. Data about another subject is not valid for it."""

    def __init__(self, secret: bytes, subject: str) -> None:
        self._secret = blake2b(subject.encode(), key=secret, digest_size=32).digest()

    def sign(self, what: str, data: bytes) -> bytes:
        head = b"%d %s %s" % (len(data), new_hash(data).hexdigest().encode(), what.encode())
        return b"".join((self._hash(head), b" ", head, b"\n", data))  # other threads run while a lot is copied

    def read_head(self, line: bytes) -> Head | None:
        """Parses a line as a head; None if its signature is not valid."""
        said, _, head = line.partition(b" ")
        if not hmac.compare_digest(said, self._hash(head)):
            return None
        length, digest, what = head.decode().split(" ", 2)
        return Head(what, int(length), digest)

    def entry(self, what: str, data: bytes) -> bytes:
        """Signs data that is added to a file. It starts on a new line even after text of a cell."""
        return b"".join((b"\n", self.sign(what, data)))

    def read_file(self, place: Place, name: str, what: str) -> bytes:
        """Returns the data of a file whose head says `what`; raises ValueError if its signature is not valid."""
        fd = place.open_for_reading(name)
        try:
            data = self.read_entry(fd, 0, what)
        finally:
            os.close(fd)
        if data is None:
            raise ValueError("its signature is not valid")
        return data

    def read_entry(self, fd: int, position: int, what: str) -> bytes | None:
        """Returns the data of the entry at a position; None if it says something else, or was changed."""
        beginning = os.pread(fd, LONGEST_HEAD, position)
        line = beginning.lstrip(b"\n").partition(b"\n")[0]
        head, begins = self.read_head(line), beginning.find(line) + len(line) + 1
        if head is None or head.what != what:
            return None
        data = beginning[begins : begins + head.length]
        if len(data) < head.length:
            data = os.pread(fd, head.length, position + begins)
        return data if len(data) == head.length and head.is_of(new_hash(data)) else None

    def last_entry(self, fd: int, what: str) -> tuple[bytes, int] | None:
        """Returns the data of the last entry, one line that says `what`, and where the entry begins; None if the file
        ends with anything else.
        """
        size = os.fstat(fd).st_size
        *_, line, data = (b"\n" + os.pread(fd, _TAIL, max(0, size - _TAIL))).rsplit(b"\n", 2)
        head = self.read_head(line)
        if head is None or head.what != what or head.length != len(data) or not head.is_of(new_hash(data)):
            return None
        return data, size - len(line) - len(data) - 2

    def walk(self, fd: int) -> Iterator[tuple[str, int]]:
        """Yields what the entries of a file are, and where each begins. Unsigned lines are skipped, up to a limit."""
        position = 0
        for _ in range(_MOST_LINES):
            line, end, _ = os.pread(fd, LONGEST_HEAD, position).partition(b"\n")
            if not line and not end:
                return
            head = self.read_head(line)
            if head is not None:
                yield head.what, position
            position += len(line) + 1 + (0 if head is None else head.length)

    def _hash(self, head: bytes) -> bytes:
        return blake2b(head, key=self._secret, digest_size=16).hexdigest().encode()


def new_hash(data: bytes = b"") -> blake2b:
    """Returns a hash that more data can be added to."""
    return blake2b(data, digest_size=32)
