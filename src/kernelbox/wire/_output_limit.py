"""The limit of output: text of any length is kept in bounded memory, as its head, its tail and a line about the cut.

`base/_config.py` has the default limit, and `wire/results/_transcript.py` applies it to what a cell writes. A budget is
something else: how much of that a model is shown, in `wire/results/_shortening.py`.
"""

from __future__ import annotations

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Programs read a cell's value and an exception's message, and half of one is useless to them. They are kept whole up to
# this many characters, even if the limit for text that people and models read is lower.
WHOLE_VALUE = 1_000_000

# Below this limit a whole line about the cut would take more than half of it, so one character replaces the line.
_SMALL = 64
_SMALL_NOTICE = "…"

_NOTICE_BEGIN, _NOTICE_END = "\n[… ", " characters cut …]\n"

# The head leaves this much room for the notice, enough for a million characters cut.
_NOTICE_ROOM = 32

# The longest notice: it has room for 10 to the power of 18.
_LONGEST_NOTICE = 48


class BoundedText:
    """Collects text and keeps at most `limit` characters of it, the notice included; a limit of 0 keeps all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head_room = (limit - _NOTICE_ROOM if limit >= _SMALL else limit - 1) // 2
        self._parts: list[str] = []
        self._held = 0
        self._head: str | None = None
        self._size = 0
        self._text: str | None = None  # the joined parts, until more is added

    def add(self, text: str) -> None:
        if not text:
            return
        self._text = None
        self._parts.append(text)
        self._held += len(text)
        self._size += len(text)
        # Compacting only at twice the limit makes each character move a constant number of times.
        if 0 < self._limit * 2 < self._held:
            self._compact()

    def add_bounded(self, text: str) -> None:
        """Adds text that may have been cut to the same limit before, with the effect of the whole text."""
        was_cut = _SMALL <= self._limit <= len(text) + 2  # two characters may be left of the room for the notice
        head, cut, tail = _take_apart(text, self._head_room) if was_cut else (text, 0, "")
        self.add(head)
        if cut:
            if self._head is None:
                self._head = "".join(self._parts)[: self._head_room]
            self._parts, self._held = [], 0
            self._size += cut
            self.add(tail)

    @property
    def cut(self) -> int:
        """How many characters are left out of `text`."""
        if self._limit <= 0 or self._size <= self._limit:
            return 0
        return self._size - self._head_room - self._tail_room

    @property
    def held(self) -> int:
        """How many characters are in memory."""
        return self._held

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = self._put_together()
        return self._text

    def _put_together(self) -> str:
        whole = "".join(self._parts)
        if not self.cut:
            return whole
        head = whole[: self._head_room] if self._head is None else self._head
        tail = whole[max(0, len(whole) - self._tail_room) :]
        return f"{head}{cut_notice(self.cut, self._limit)}{tail}"

    def __bool__(self) -> bool:
        return self._size > 0

    @property
    def _tail_room(self) -> int:
        """The room that head and notice leave; the notice is measured as if a few characters more were cut."""
        longest = cut_notice(self._size - self._limit + _LONGEST_NOTICE, self._limit)
        return self._limit - self._head_room - len(longest)

    def _compact(self) -> None:
        whole = "".join(self._parts)
        if self._head is None:
            self._head, whole = whole[: self._head_room], whole[self._head_room :]
        # The notice can only become longer, and the tail shorter.
        keep = whole[len(whole) - self._tail_room :]
        self._parts, self._held = [keep], len(keep)


def bound(text: str, limit: int) -> str:
    """Returns `text` with its middle cut to `limit` characters, if it is longer."""
    if limit <= 0 or len(text) <= limit:
        return text
    bounded = BoundedText(limit)
    bounded.add(text)
    return bounded.text


def value_limit(limit: int) -> int:
    """Returns how many characters of a value are kept when text is cut to `limit`; 0 keeps all."""
    return max(limit, WHOLE_VALUE) if limit > 0 else 0


def _take_apart(text: str, head_room: int) -> tuple[str, int, str]:
    """Returns what a text was cut to, and how many characters are missing between; 0 if none are."""
    end = text.find(_NOTICE_END, head_room, head_room + _LONGEST_NOTICE)
    digits = text[head_room + len(_NOTICE_BEGIN) : max(end, 0)].replace(",", "")
    if not text.startswith(_NOTICE_BEGIN, head_room) or not (digits.isascii() and digits.isdecimal()):
        return text, 0, ""
    return text[:head_room], int(digits), text[end + len(_NOTICE_END) :]


def cut_notice(cut: int, limit: int) -> str:
    """Returns the notice that replaces the characters cut from a text of at most `limit`."""
    return f"{_NOTICE_BEGIN}{cut:,}{_NOTICE_END}" if limit >= _SMALL else _SMALL_NOTICE
