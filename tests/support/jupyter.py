"""What these tests hold cells with."""

from __future__ import annotations

import os
from pathlib import Path


class Gate:
    """A named pipe that a cell waits at until the test lets it pass."""

    def __init__(self, directory: Path) -> None:
        path = directory / f"gate-{os.urandom(4).hex()}"
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)  # so that neither side waits for the other to open it
        self.wait = f"_ = open({str(path)!r}).readline()"
        """Python code that waits at the gate."""

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def let_pass(self) -> None:
        os.write(self._fd, b"\n")
