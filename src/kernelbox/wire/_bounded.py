"""Text of any length in bounded memory: the head and the tail are kept, a line between them says what was cut."""

from __future__ import annotations

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# A value that a cell returns, and what an exception says, are answers to a program: half of one is of no use. They are
# whole up to this many characters, whatever the limit for text that people and models read.
_WHOLE_VALUE = 1_000_000

# Below this limit the line that says how much was cut would take more than half; one character stands for it then.
_SMALL = 64
_SMALL_NOTICE = "…"

# What the head leaves free beside the tail: the notice of up to a million characters cut fits it.
_NOTICE_ROOM = 32

# No notice is longer: it has room for 10 to the power of 18.
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
        self._text: str | None = None  # put together, until more is added

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
        tail = whole[len(whole) - self._tail_room :]
        return f"{head}{cut_notice(self.cut, self._limit)}{tail}"

    def __bool__(self) -> bool:
        return self._size > 0

    @property
    def _tail_room(self) -> int:
        """What head and notice leave of the limit; the notice is counted as if a few characters more were cut."""
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
    """Returns how many characters of a value are kept where text is kept to `limit`; 0 is all."""
    return max(limit, _WHOLE_VALUE) if limit > 0 else 0


def cut_notice(cut: int, limit: int) -> str:
    """Returns what stands for characters that were cut where a text is kept to `limit`."""
    return f"\n[… {cut:,} characters cut …]\n" if limit >= _SMALL else _SMALL_NOTICE
