"""`sys.stdin`, `sys.stdout` and `sys.stderr` inside a kernel."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable

from kernelbox.guest._outbox import Outbox, open_writer

_write = os.write


class OutStream(io.TextIOBase):
    """A text stream into the pipe of descriptor 1 or 2.

    A text is in the pipe when `write` returns; if the pipe is full the writer empties it itself.
    """

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    mode = "w"

    def __init__(self, outbox: Outbox, stream: int) -> None:
        self._outbox = outbox
        self._stream = stream
        self._fd = open_writer(stream + 1)
        self.name = ("<stdout>", "<stderr>")[stream]
        # `sys.stdout.buffer` is for bytes, on the same way as text.
        self.buffer = io.FileIO(stream + 1, "wb", closefd=False)

    def write(self, text: str) -> int:
        if self._outbox.current_stream != self._stream:
            self._outbox.switch(self._stream)
        try:
            data = text.encode("utf-8", "backslashreplace")
        except AttributeError:
            raise TypeError(f"write() argument must be str, not {type(text).__name__}") from None
        try:
            written = _write(self._fd, data)
        except BlockingIOError:
            written = 0
        if written != len(data):
            self._write_rest(data[written:])
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]  # bytes make no sense here
        self.write("".join(lines))

    def flush(self) -> None:
        """Makes what was written visible to the reader."""
        self._outbox.relieve()

    def fileno(self) -> int:
        return self._stream + 1

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: a cell that closes its stdout must not silence the next."""

    def _write_rest(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._outbox.forked:
            view = view[_write(self._stream + 1, view) :]  # a child of the cell: the kernel empties the pipe
        while view:
            self._outbox.relieve()
            try:
                view = view[_write(self._fd, view[:65536]) :]
            except BlockingIOError:
                continue  # another thread filled it again


class InputUnavailable(RuntimeError):
    """Raised by `input()` and `getpass()`: nobody is there to type."""


def refuse_input(prompt: object = "", *_: object, **__: object) -> str:
    """Stands in for `input` and `getpass.getpass`."""
    raise InputUnavailable(
        f"input({str(prompt)!r:.200}) cannot be answered: no one is at the keyboard of this kernel. "
        "Put the value into the code instead."
    )
