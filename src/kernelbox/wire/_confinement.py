"""The confinement of a sandboxed kernel, as the host computes it: the files it sees and the system calls it may use.

It reaches the kernel's process through a descriptor, because only that process may read it. Reading it costs mostly
the pages of memory that the reader copies, so it is not JSON: it is the length of the program for seccomp(2), the
program, and texts separated by zeros.
"""

from __future__ import annotations

import struct

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._layout import UNARMED
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal["hide", "screen", "read", "write", "private", "pin"]

keep_builtins(globals())

_LENGTH = struct.Struct("<I")
_DIRECTORY, _FILE = "directory", "file"

# Mounts of one kernel: each takes about 30 µs at every start, and the system allows 100,000 (fs.mount-max).
MOST_MOUNTS = 50_000


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount at a path, over earlier mounts there.

    `read` and `write` show the host's files; `hide` refuses access to them; `screen` hides a directory but not the
    mounts below it; `private` is an empty directory that lives as long as the kernel. `pin` keeps a directory from
    being moved or removed; the next mount above it covers it.
    """

    kind: Kind
    path: str
    directory: bool = True


@dataclass(frozen=True, slots=True)
class Confinement:
    """The mounts, in this order, and the program for seccomp(2).

    `links` are made last and map the path of each to its target; `scratch` is the kernel's own directory in a private
    one.
    """

    mounts: list[Mount]
    filter: bytes
    scratch: str
    links: dict[str, str]

    def encode(self) -> bytes:
        texts = [self.scratch, str(len(self.mounts))]
        for mount in self.mounts:
            texts += mount.kind, mount.path, _DIRECTORY if mount.directory else _FILE
        for path, target in self.links.items():
            texts += path, target
        return _LENGTH.pack(len(self.filter)) + self.filter + "\0".join(texts).encode("utf-8", "surrogatepass")

    @classmethod
    def decode(cls, data: bytes) -> Confinement:
        (length,) = _LENGTH.unpack_from(data)
        begin = _LENGTH.size + length
        scratch, count, *texts = data[begin:].decode("utf-8", "surrogatepass").split("\0")
        end = 3 * int(count)
        mounts: list[Mount] = []
        for at in range(0, end, 3):
            kind, path, directory = texts[at : at + 3]
            mounts.append(Mount(kind, path, directory == _DIRECTORY))  # type: ignore[arg-type]  # what was encoded
        links = dict(zip(texts[end::2], texts[end + 1 :: 2], strict=True))
        return cls(mounts, data[_LENGTH.size : begin], scratch, links)


def describe_failure(step: str, exc: OSError) -> str:
    """Returns the reason for a step that the system refused; `failed_step` reads it."""
    return f"{UNARMED}{step} failed: {exc.strerror} (errno {exc.errno})"


def failed_step(reason: str) -> tuple[str, int] | None:
    """Returns the step that such a reason names, and the system's error number; None for other texts."""
    step, separator, rest = reason.partition(UNARMED)[2].partition(" failed: ")
    number = rest.rpartition("(errno ")[2].partition(")")[0]
    return (step, int(number)) if separator and number.isdecimal() else None
