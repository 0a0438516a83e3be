"""What a tool server sends: who listens to it, and how much it may send at once. This module works without the SDK."""

from __future__ import annotations

import re

from kernelbox.wire._json import outside_texts
from kernelbox.wire._values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes of one message. A kernel could not take a larger answer, however it was escaped.
LARGEST_MESSAGE = 256 * 1024 * 1024

# Values in one message. Each becomes an object of some hundred bytes while the host reads it: a megabyte of `[],[],`
# would take a hundred.
_MOST_VALUES = 1_000_000

# In JSON: a backslash that stands for itself, a pair of surrogates, and one without the other.
_ESCAPES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

# Backslashes in a message that is looked through for them: more would hold up all sessions.
_MOST_MENDED = 200_000

UNREADABLE = "its answer cannot be read"
UNREADABLE_MESSAGE = f"{UNREADABLE}: it is not valid, nested too deeply, or has too many values"

# Characters of a line of a server's log, or of what it says of its progress.
LONGEST_NOTICE = 2_000

# The end of a server's stderr, and of noise on its stdout, is kept for the error message when it fails.
_KEPT = 2_000
_KEPT_LINES = 10


class Words:
    """The end of what a server wrote beside the protocol."""

    def __init__(self) -> None:
        self._text = bytearray()

    def __repr__(self) -> str:
        return f"<Words {str(self)!r}>"

    def add(self, data: bytes | bytearray) -> None:
        """Adds text, and keeps the end."""
        self._text += data[-_KEPT:]
        del self._text[:-_KEPT]

    def add_once(self, line: str) -> None:
        """Adds a line, unless the last one was the same."""
        if not str(self).endswith(line):
            self.add(f"{line}\n".encode())

    def clear(self) -> None:
        """Forgets the text."""
        self._text.clear()

    def __str__(self) -> str:
        text = self._text.decode("utf-8", "replace").strip()
        lines = text.splitlines()[-_KEPT_LINES:]
        return "\n".join("".join(char if char.isprintable() else " " for char in line) for line in lines)

    def after(self, sentence: str) -> str:
        """Returns a sentence about a failure, followed by the text."""
        said = str(self)
        return f"{sentence}; it said: {said}" if said else sentence


@dataclass(frozen=True, slots=True)
class Listener:
    """What a session wants to hear about its server: that it has ended, a line of its log with the level, that its
    list of tools has changed, and its other output.
    """

    on_end: Callable[[], None]
    on_log: Callable[[str, str], None]
    on_change: Callable[[], None]
    words: Words


def check_message(data: bytes | bytearray) -> None:
    """Raises ValueError for a message that would fill the reader's memory."""
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MOST_VALUES:
        outside_texts(data, _MOST_VALUES)


def mend_message(data: bytes | bytearray) -> bytes | bytearray:
    """Returns a message without halves of characters: servers in JavaScript cut texts in the middle of an emoji."""
    if (b"\\ud" not in data and b"\\uD" not in data) or data.count(b"\\") > _MOST_MENDED:
        return data
    return _ESCAPES.sub(lambda found: rb"\ufffd" if found["half"] else found[0], data)
