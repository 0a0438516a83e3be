"""The pipes that a kernel's text goes through, as the kernel itself writes to them and empties them."""

from __future__ import annotations

from _codecs import utf_8_decode
from typing import Any

from kernelbox.guest._pristine import fcntl, os, select
from kernelbox.guest._reserve import spend_reserve
from kernelbox.wire._pristine import keep_builtins

keep_builtins(globals())

# Bytes that are read at a time, and where memory is short.
_READ = 256 * 1024
_SMALL_READ = 4096

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
