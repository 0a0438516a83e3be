"""`sys.stdin`, `sys.stdout` and `sys.stderr` inside a kernel."""

from __future__ import annotations

import io
from collections.abc import Iterable

from kernelbox.guest._outbox import Outbox


class OutStream(io.TextIOBase):
    """A text stream whose writes go to the outbox; below it, descriptor 1 or 2 ends in the same place."""

    encoding = "utf-8"
    errors = "backslashreplace"
    newlines = None
    line_buffering = True
    mode = "w"

    def __init__(self, outbox: Outbox, stream: int) -> None:
        self._outbox = outbox
        self._stream = stream
        self.name = ("<stdout>", "<stderr>")[stream]
        # `sys.stdout.buffer` is for bytes: they take the descriptor, whose pipe is emptied before each text.
        self.buffer = io.FileIO(stream + 1, "wb", closefd=False)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._outbox.write(self._stream, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]  # bytes make no sense here
        self.write("".join(lines))

    def flush(self) -> None:
        self._outbox.flush()

    def fileno(self) -> int:
        return self._stream + 1

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: a cell that closes its stdout must not silence the next."""


class InputUnavailable(RuntimeError):
    """Raised by `input()` and `getpass()`: nobody is there to type."""


def refuse_input(prompt: object = "", *_: object, **__: object) -> str:
    """Stands in for `input` and `getpass.getpass`."""
    raise InputUnavailable(
        f"input({str(prompt)!r:.200}) cannot be answered: no one is at the keyboard of this kernel. "
        "Put the value into the code instead."
    )
