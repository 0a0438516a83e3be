"""Data in files that cells can write to, of which only what a host has signed is believed.

    HASH LENGTH DIGEST WHAT, a line end, DATA

The keyed hash is of the rest of its line, the head. So it is known before any data is read how much there is of it, and
that a host has said so: what a cell plants costs no more than a line.
"""

from __future__ import annotations

import hmac
import os
from hashlib import blake2b

from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._place import Place

# Bytes of a head: two hashes, a length, and words of which the longest names an approval request.
LONGEST_HEAD = 512


@dataclass(frozen=True, slots=True)
class Head:
    """What a host has said of the data that follows: what it is, and how long."""

    what: str
    length: int
    digest: str

    def fits(self, data: bytes) -> bool:
        """Tells whether this is the data."""
        return len(data) == self.length and self.is_of(new_hash(data))

    def is_of(self, hashed: blake2b) -> bool:
        """Tells whether this is of the data that has been hashed."""
        return hmac.compare_digest(self.digest, hashed.hexdigest())


class Signature:
    """Signs what is about one subject; what is about another does not pass for it."""

    def __init__(self, secret: bytes, subject: str) -> None:
        self._secret = blake2b(subject.encode(), key=secret, digest_size=32).digest()

    def __repr__(self) -> str:
        return "<Signature>"

    def sign(self, what: str, data: bytes) -> bytes:
        """Returns data behind its head."""
        head = b"%d %s %s" % (len(data), new_hash(data).hexdigest().encode(), what.encode())
        return b"".join((self._hash(head), b" ", head, b"\n", data))  # which lets others run while it copies much

    def read_head(self, line: bytes) -> Head | None:
        """Returns the head that a line is, None if no host has written it."""
        said, _, head = line.partition(b" ")
        if not hmac.compare_digest(said, self._hash(head)):
            return None
        length, digest, what = head.decode().split(" ", 2)
        return Head(what, int(length), digest)

    def read_file(self, place: Place, name: str, what: str) -> bytes:
        """Returns the data of a file that has nothing else in it; raises ValueError if no host has written it."""
        fd = place.open_for_reading(name)
        try:
            line, _, data = os.read(fd, LONGEST_HEAD).partition(b"\n")
            head = self.read_head(line)
            if head is not None and head.what == what:
                data = b"".join((data, os.read(fd, max(0, head.length - len(data)))))
                if head.fits(data):
                    return data
        finally:
            os.close(fd)
        raise ValueError("no host has written it")

    def _hash(self, head: bytes) -> bytes:
        return blake2b(head, key=self._secret, digest_size=16).hexdigest().encode()


def new_hash(data: bytes = b"") -> blake2b:
    """Returns the hash of data, to which more can be added."""
    return blake2b(data, digest_size=32)
