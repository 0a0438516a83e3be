"""A cell's output on a screen, within a limit: the beginning at once, the end when the cell has ended."""

from __future__ import annotations

from collections import deque

from kernelbox.wire._output_limit import cut_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Characters; a cell that wrote more would have to write for days.
_MOST_CUT = 10**12

_STREAMS = ("stdout", "stderr")


class Excerpt:
    """Passes on pieces of text, `limit` characters in all; a limit of 0 passes on everything."""

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._head = limit // 2
        self._room = limit
        self._held: deque[tuple[str, str]] = deque()
        self._held_size = 0
        self._cut = 0
        self._cut_kind = ""

    def begin(self, kind: str, text: str) -> str:
        """Returns the part of a piece to show now, and holds the rest. Only text of streams is split."""
        if self._limit <= 0:
            return text
        passing = self._head if kind in _STREAMS or len(text) <= self._head else 0
        now, later = text[:passing], text[passing:]
        self._room -= len(now)
        self._head = 0 if later else self._head - len(now)
        if later:
            self._held.append((kind, later))
            self._held_size += len(later)
            self._drop()
        return now

    def end(self) -> Iterator[tuple[str, str]]:
        """Yields the held pieces, after a line that says how much is missing."""
        if self._cut:
            yield self._cut_kind, cut_notice(self._cut, self._limit)
        yield from self._held
        self._held.clear()

    def _drop(self) -> None:
        """Drops the oldest held text until the rest fits."""
        if self._held_size > self._room and not self._cut:
            self._room = max(0, self._room - len(cut_notice(_MOST_CUT, self._limit)))
        while (surplus := self._held_size - self._room) > 0:
            kind, text = self._held.popleft()
            if len(text) > surplus:
                self._held.appendleft((kind, text[surplus:]))
            dropped = min(surplus, len(text))
            self._held_size -= dropped
            self._cut += dropped
            self._cut_kind = kind
