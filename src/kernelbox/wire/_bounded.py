"""Text of any length in bounded memory: the head and the tail are kept, a line between them says what was cut."""

from __future__ import annotations

# Room for the line that says what was cut; a limit below twice this is spent on text alone.
_NOTICE = 64


class BoundedText:
    """Collects text and keeps at most `limit` characters of it, the notice included; a limit of 0 keeps all."""

    def __init__(self, limit: int) -> None:
        room = limit - _NOTICE if limit >= 2 * _NOTICE else limit
        self._limit = limit
        self._head_room = room // 2
        self._tail_room = room - self._head_room
        self._parts: list[str] = []
        self._size = 0
        self._head: str | None = None
        self._dropped = 0

    def add(self, text: str) -> None:
        if not text:
            return
        self._parts.append(text)
        self._size += len(text)
        # Compacting only at twice the limit makes each character move a constant number of times.
        if 0 < self._limit * 2 < self._size:
            self._compact()

    @property
    def cut(self) -> int:
        """How many characters are left out of `text`."""
        if self._limit <= 0:
            return 0
        if self._head is None:
            return 0 if self._size <= self._limit else self._size - self._head_room - self._tail_room
        return self._dropped + max(0, self._size - self._tail_room)

    @property
    def text(self) -> str:
        whole = "".join(self._parts)
        if not self.cut:
            return whole
        head = whole[: self._head_room] if self._head is None else self._head
        tail = whole[len(whole) - self._tail_room :]
        return f"{head}\n[… {self.cut:,} characters cut …]\n{tail}"

    def __bool__(self) -> bool:
        return self._size > 0 or self._head is not None

    def _compact(self) -> None:
        whole = "".join(self._parts)
        if self._head is None:
            self._head, whole = whole[: self._head_room], whole[self._head_room :]
        keep = whole[len(whole) - self._tail_room :]
        self._dropped += len(whole) - len(keep)
        self._parts, self._size = [keep], len(keep)


def bound(text: str, limit: int) -> str:
    """Returns `text` with its middle cut to `limit` characters, if it is longer."""
    if limit <= 0 or len(text) <= limit:
        return text
    bounded = BoundedText(limit)
    bounded.add(text)
    return bounded.text
