"""The pipes that a kernel's text goes through: how they are written to, emptied and sized, and C code's stdout.

A kernel empties its pipes itself, within milliseconds. It cannot while C code holds the interpreter, and such code
waits when a pipe is full: the keeper enlarges it then.
"""

from __future__ import annotations

import ctypes
import sys
import termios
from _codecs import utf_8_decode
from typing import Any

from kernelbox.guest._memory_reserve import spend_reserve
from kernelbox.guest._stdlib import contextlib, fcntl, os, select
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Bytes that are read at a time, and where memory is short.
_READ = 256 * 1024
_SMALL_READ = 4096

# What a pipe has room for, pipe(7), and what every user may enlarge it to (fs.pipe-max-size). The kernel must be able
# to take so much when a cell ends: `_READS` in the outbox.
_USUAL = 64 * 1024
_LARGE = 1024 * 1024

_UNBUFFERED = 2  # _IONBF of stdio.h

_NONE: list[int] = []


class FullPipes:
    """The pipes in which something waits to be read, in the order in which it was written.

    epoll(7) keeps them in that order; edge-triggered it names a pipe again only when more has been written since.
    """

    def __init__(self, pipes: tuple[int, int]) -> None:
        self._rest: list[int] = []
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll: Any = select.poll() if self._epoll is None else self._epoll
        for pipe in pipes:
            os.set_blocking(pipe, False)
            self._poll.register(pipe, select.POLLIN if self._epoll is None else select.EPOLLIN | select.EPOLLET)

    def take(self) -> list[int]:
        """Returns the pipes; what is not read until a pipe is empty must be put back."""
        events = self._poll.poll(0)
        if not self._rest:
            return [pipe for pipe, _ in events] if events else _NONE
        taken, self._rest = self._rest, []
        return [*taken, *(pipe for pipe, _ in events if pipe not in taken)]

    def put_back(self, pipe: int) -> None:
        self._rest.append(pipe)


class TextDecoder:
    """Turns what is read of a pipe into text; a character may come in parts."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def has_rest(self) -> bool:
        """Whether a character has come in part."""
        return bool(self._rest)

    def decode(self, data: bytes, final: bool = False) -> str:
        data = self._rest + data
        text, used = utf_8_decode(data, "backslashreplace", final)
        self._rest = data[used:]
        return text


def open_writer(pipe: int) -> int:
    """Returns a second way into a pipe that does not block, while subprocesses have one that does.

    O_NONBLOCK belongs to the open file, not to the descriptor, so the pipe is opened anew.
    """
    try:
        return os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 3)


def read_pipe(pipe: int) -> bytes:
    """Returns what waits in a pipe, or the beginning of it."""
    try:
        return os.read(pipe, _READ)
    except BlockingIOError:
        return b""
    except MemoryError:
        spend_reserve()
        return os.read(pipe, _SMALL_READ)


def fit_pipe(pipe: int) -> None:
    """Enlarges a pipe that is more than half full, and makes an empty one as small as it was.

    Each write(2) may begin a page, so a pipe can be full when it holds half of what it could.
    """
    if pipe < 0 or not hasattr(fcntl, "F_SETPIPE_SZ"):
        return
    with contextlib.suppress(OSError):  # the user has enlarged too many
        size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        waiting = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        if size < _LARGE and 2 * waiting > size:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _LARGE)
        elif size > _USUAL and not waiting:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _USUAL)


def _find_stdout(library: ctypes.CDLL) -> ctypes.c_void_p | None:
    for name in ("stdout", "__stdoutp"):  # what glibc and musl call it, and macOS
        try:
            return ctypes.c_void_p.in_dll(library, name)
        except ValueError:
            continue
    return None


# Looked up once, in the template.
_library = ctypes.PyDLL(None)
_stdout = _find_stdout(_library)


def write_c_stdout_at_once() -> None:
    """Has what C code prints go into the pipe with each call.

    A buffer would be lost when the process is killed, and belong to a fork as well. stderr is not buffered by any C
    library.
    """
    if _stdout is not None:
        _library.setvbuf(_stdout, None, _UNBUFFERED, 0)
