r"""Makes what cells write safe for a terminal: text and colours pass, other commands to the terminal do not.

Escape sequences can rename the window, fill the clipboard, overwrite earlier lines, or make the terminal type an
answer. So only colours (`ESC [ … m`) are passed on, and the control characters of progress bars: `\n`, `\r`, `\t`,
`\b`. All others are spelled out, and so are characters that change the direction of writing.
"""

from __future__ import annotations

import re

from kernelbox.base._text import escape

# More parameters than a colour has: `38;2;255;255;255;48;2;255;255;255` is both colours, each by red, green and blue.
_COLOUR = r"\x1b\[[0-9;:]{0,60}m"
_LONGEST_COLOUR = len("\x1b[") + 60 + len("m")

# Control characters, line separators, and characters that change the direction of writing.
_ACTIVE = re.compile(rf"{_COLOUR}|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_BEGINNING = re.compile(r"\x1b(?:\[[0-9;:]{0,60})?")
_NO_COLOUR = re.compile(r"\x1b\[[0;:]*m")


class TerminalText:
    """The text of one stream. Its pieces may end in the middle of an escape sequence."""

    def __init__(self) -> None:
        self._held = ""
        self._coloured = False

    def __repr__(self) -> str:
        return f"<TerminalText held={self._held!r} coloured={self._coloured}>"

    def feed(self, text: str) -> str:
        """Returns what can be written now, and holds back what may be the beginning of a colour."""
        text = self._held + text
        start = text.rfind("\x1b", max(0, len(text) - _LONGEST_COLOUR))
        self._held = text[start:] if start >= 0 and _BEGINNING.fullmatch(text, start) else ""
        return _ACTIVE.sub(self._make_harmless, text[: len(text) - len(self._held)])

    def end(self) -> str:
        """Returns what was held back, spelled out, and switches off a colour that was left on."""
        rest = escape(self._held) + ("\x1b[0m" if self._coloured else "")
        self._held, self._coloured = "", False
        return rest

    def _make_harmless(self, found: re.Match[str]) -> str:
        if len(found[0]) == 1:
            return escape(found[0])
        self._coloured = _NO_COLOUR.fullmatch(found[0]) is None
        return found[0]


def for_terminal(text: str) -> str:
    """Returns a complete text, made safe for a terminal."""
    made = TerminalText()
    return made.feed(text) + made.end()
