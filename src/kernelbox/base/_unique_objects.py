"""Objects that exist once: handles, whose copy is the same handle, and owners of descriptors, which cannot be copied.

Programs copy objects without asking: agent frameworks deep-copy the tools that hold them. A copy of an owner would
close the descriptors of the original, and later those of other files that got the same numbers.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Self, SupportsIndex


class Handle:
    """A handle to something alive: `copy` and `deepcopy` return the same handle, and it cannot be pickled."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(f"a {kind} belongs to its process and cannot be pickled; make one in the other process")


class Owner:
    """Owns descriptors. It cannot be copied or pickled, because each descriptor must be closed once."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # copy and deepcopy ask it too
        raise TypeError(f"a {type(self).__name__} owns open files and cannot be copied or pickled")


def identify(fd: int) -> tuple[int, int]:
    """Returns the device and inode of an open file."""
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


def close_own(fd: int, identity: tuple[int, int]) -> None:
    """Closes a descriptor if it is still the file it was: a program may have closed it and opened another."""
    try:
        if identify(fd) == identity:
            os.close(fd)
    except OSError:
        pass  # the program has closed it


def fill_standard_descriptors() -> None:
    """Opens the null device for each of the descriptors 0 to 2 that is closed.

    A program may have closed them. The next file would get such a number, and a child process would take that file for
    its standard stream. Reading this stdin and writing this stdout fail, as if they were closed.
    """
    for fd, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, flags)  # the lowest free number, which is this one
            if null != fd:
                os.close(null)  # another thread has just opened a file
