"""`sys.stdout` and `sys.stderr` inside a kernel, the pipes that their text goes through, and C code's stdout."""

from __future__ import annotations

import ctypes
import io
from _codecs import utf_8_decode
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kernelbox.guest._descriptors import put_behind
from kernelbox.guest._memory_reserve import spend_reserve
from kernelbox.guest._stdlib import fcntl, os, select, threading
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._kernel_state import STREAMS

if TYPE_CHECKING:
    from kernelbox.guest.output._outbox import Outbox

keep_builtins(globals())

# A line that is being written in parts is passed on at this length. With six bytes a character, which half of a pair
# takes as an escape, it still fits what a pipe takes whole or not at all (PIPE_BUF, 4096 bytes).
_LONGEST_PARTIAL = 680

# Bytes that are read at a time, and where memory is short.
_READ = 256 * 1024
_SMALL_READ = 4096

_UNBUFFERED = 2  # _IONBF of stdio.h

_NONE: list[int] = []


class OutStream(io.TextIOBase):
    """A text stream into the pipe of descriptor 1 or 2.

    It is line-buffered, as at a terminal: `print` writes a text and its newline apart, and one system call is what
    printing costs. If the pipe is full the writer empties it itself.
    """

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    mode = "w"

    def __init__(self, outbox: Outbox, stream: int) -> None:
        self._outbox = outbox
        self._stream = stream
        self.writer = open_writer(stream + 1)
        """The descriptor that text is written to."""
        self.name = ("<stdout>", "<stderr>")[stream]
        self.buffer = ByteStream(self)
        self.after_fork()
        outbox.streams.append(self)

    def after_fork(self) -> None:
        """Starts over, also in a forked child: a begun line is the kernel's, and its lock may be held for ever."""
        self._write_here, self.push, self.has_begun_line = self._make_writers()
        self.tell_tasks_apart(False)

    def tell_tasks_apart(self, on: bool) -> None:
        """Sends what a task writes to the cell that made the task, or to the one that runs."""
        self.write = self._write_where_it_belongs if on else self._write_here  # type: ignore[method-assign]  # found first

    def _write_where_it_belongs(self, text: str, /) -> int:
        if not (elsewhere := self._outbox.find_elsewhere()) or type(text) is not str:
            return self._write_here(text)
        self._outbox.write_for(elsewhere, STREAMS[self._stream], text)
        return len(text)

    def renew(self) -> None:
        """Puts a way into the pipe that is there now behind the number of the old one."""
        put_behind(self.writer, open_writer(self._stream + 1))

    def _make_writers(self) -> tuple[Callable[[str], int], Callable[[], bool], Callable[[], bool]]:
        """Returns `write`, `push` and `has_begun_line`, which share the begun line.

        They are closures because `print` calls `write` twice, and every attribute that it looks up is paid for in each.
        For the same reason `write` takes no lock. The interpreter changes threads, and calls signal handlers, only
        after a call and where a loop or function begins. So nothing comes between the look at the begun line and what
        is done with it, nor between `begun = ""` and the write: a line is written once or, if an interrupt was first,
        not at all. The line is one thread's: what another writes goes the slow way, so that no thread carries the text
        of another, which could meanwhile write more.
        """
        outbox, stream, fd, lock = self._outbox, self._stream, self.writer, self._outbox.lock
        write_rest, write_slowly, write_fd = self._write_rest, self._write_slowly, os.write
        get_ident, begun, held, owner, pushing = threading.get_ident, "", 0, 0, False

        def write(text: str, /) -> int:
            nonlocal begun, held, owner
            if type(text) is not str:
                return write_slowly(text)
            size, thread = len(text), get_ident()
            if pushing or outbox.current_stream != stream:
                return write_slowly(text)
            if not begun:
                if size < _LONGEST_PARTIAL and "\n" not in text:
                    begun, held, owner = text, size, thread
                    return size
            elif owner != thread:
                return write_slowly(text)
            elif held + size < _LONGEST_PARTIAL and "\n" not in text:
                begun += text
                held += size
                return size
            line = begun
            try:
                data = (line + text).encode()  # without arguments it is twice as fast
            except UnicodeEncodeError:
                data = (line + text).encode("utf-8", "backslashreplace")
            if pushing or begun is not line:  # type: ignore[redundant-expr]  # another thread has pushed or written
                return write_slowly(text)
            begun = ""
            try:
                written = write_fd(fd, data)
            except BlockingIOError:
                written = 0
            if written != len(data):
                write_rest(data[written:])
            return size

        def push() -> bool:
            """Writes the line that has been begun; False if the pipe is too full for it."""
            nonlocal begun, pushing
            if not begun:
                return True
            with lock:
                pushing = True  # what comes after the line must not be written before it
                try:
                    line, begun = begun, ""
                    data = line.encode("utf-8", "backslashreplace")
                    try:
                        write_fd(fd, data)
                    except BlockingIOError:
                        if not outbox.forked:
                            begun = line  # while we push no thread begins another
                            return False
                        write_rest(data)
                finally:
                    pushing = False
            return True

        return write, push, lambda: bool(begun)

    def _write_slowly(self, text: str) -> int:
        """Writes text that needs some preparation."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text)}")
        text = str.__str__(text)
        self.write_bytes(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]  # bytes make no sense here
        self.write("".join(lines))

    def flush(self) -> None:
        """Makes what was written visible to the reader."""
        if self._outbox.forked:
            self.push()
        self._outbox.relieve()

    def write_bytes(self, data: bytes) -> None:
        """Writes bytes, all of them, after the text that came before."""
        while not self._make_way():
            self._outbox.relieve()
        self._write_rest(data)

    def _make_way(self) -> bool:
        """Writes all earlier text of both streams; False if our pipe is too full for the begun line."""
        if self._outbox.current_stream != self._stream:
            self._outbox.relieve()  # not under the lock: it may have to wait for the reader
        with self._outbox.lock:
            if self._outbox.current_stream != self._stream:
                self._outbox.switch(self._stream)
            return self.push()

    def reconfigure(self, **_: object) -> None:
        """Does nothing: the kernel reads UTF-8, and lines are seen as they end."""

    def detach(self) -> ByteStream:  # type: ignore[override]  # nothing has to be taken from us
        """Returns the buffer, for scripts that wrap it in a stream of their own. This stream still works."""
        self.flush()
        return self.buffer

    def fileno(self) -> int:
        return self._stream + 1

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: a cell that closes its stdout must not silence the next."""

    def _write_rest(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._outbox.forked:
            view = view[os.write(self._stream + 1, view) :]  # a child of the cell: the kernel empties the pipe
        while view:
            try:
                view = view[os.write(self.writer, view[:65536]) :]
            except BlockingIOError:
                self._outbox.relieve()


class ByteStream(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes go the same way as text, and are always written whole."""

    mode = "wb"

    def __init__(self, stream: OutStream) -> None:
        self._stream = stream
        self.name = stream.name
        self.raw = self  # nothing is kept back here

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            self._stream.write_bytes(view.tobytes())
            return view.nbytes

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing, as for the text."""


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

    def fileno(self) -> int:
        return -1 if self._epoll is None else self._epoll.fileno()

    def take(self) -> list[int]:
        """Returns the pipes. A pipe that is not read until it is empty must be put back."""
        events = self._poll.poll(0)
        if not self._rest:
            return [pipe for pipe, _ in events] if events else _NONE
        taken, self._rest = self._rest, []
        return [*taken, *(pipe for pipe, _ in events if pipe not in taken)]

    def put_back(self, pipe: int) -> None:
        self._rest.append(pipe)


class TextDecoder:
    """Turns bytes from a pipe into text. A character may arrive in parts; what is not UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self.rest = b""  # of a character that has come in part

    def decode(self, data: bytes, final: bool = False) -> str:
        data = self.rest + data
        text, used = utf_8_decode(data, "replace", final)
        self.rest = data[used:]
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
    """Makes C code write to the pipe with each call.

    A buffer would be lost when the process is killed, and a fork would have a copy. No C library buffers stderr.
    """
    if _stdout is not None:
        _library.setvbuf(_stdout, None, _UNBUFFERED, 0)
