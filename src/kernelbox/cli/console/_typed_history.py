"""The cells that were typed in consoles, in a file of the home."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from prompt_toolkit.history import History

from kernelbox.host.files._home import Home

# A file in the home. Bytes of it that are read, from its end: a year of typing.
_HISTORY = "console_history"
_LONGEST_HISTORY = 1024 * 1024


class HomeHistory(History):
    """The cells that were typed, in a file of the home. Each line begins with +; an empty line separates cells."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self._home = home

    def load_history_strings(self) -> Iterable[str]:
        """Yields the cells, the latest first."""
        try:
            with self._home.open() as place:
                text = place.tail(_HISTORY, _LONGEST_HISTORY).decode("utf-8", "replace")
        except OSError:  # there is none yet, or it is not usable
            return
        for block in reversed(text.split("\n\n")):
            lines = [line.removeprefix("+") for line in block.split("\n") if line.startswith("+")]
            if lines:
                yield "\n".join(lines)

    def store_string(self, string: str) -> None:
        """Adds a cell."""
        lines = "".join(f"+{line}\n" for line in string.split("\n"))
        with contextlib.suppress(OSError), self._home.open() as place:
            fd = place.open_for_writing(_HISTORY, os.O_APPEND)
            try:
                os.write(fd, f"\n{lines}".encode("utf-8", "replace"))
            finally:
                os.close(fd)
