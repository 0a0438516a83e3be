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
    from kernelbox.host.files._place import Place

# The most bytes of a head: two hashes, a length and a name; the longest name is that of an approval request.
LONGEST_HEAD = 512

# The most heads in a file that is read as a whole: the record of a job, and its result. A cell can copy them.
_MOST_HEADS = 2


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

    def read_file(self, place: Place, name: str, what: str) -> bytes:
        """Returns the data of a file after the head that says `what`; raises ValueError if a signature is not valid."""
        fd, position = place.open_for_reading(name), 0
        try:
            for _ in range(_MOST_HEADS):
                line, _, data = os.pread(fd, LONGEST_HEAD, position).partition(b"\n")
                head, position = self.read_head(line), position + len(line) + 1
                if head is None:
                    break
                if head.what == what:
                    data = data[: head.length] if len(data) >= head.length else os.pread(fd, head.length, position)
                    if len(data) == head.length and head.is_of(new_hash(data)):
                        return data
                position += head.length
        finally:
            os.close(fd)
        raise ValueError("its signature is not valid")

    def _hash(self, head: bytes) -> bytes:
        return blake2b(head, key=self._secret, digest_size=16).hexdigest().encode()


def new_hash(data: bytes = b"") -> blake2b:
    """Returns a hash that more data can be added to."""
    return blake2b(data, digest_size=32)
