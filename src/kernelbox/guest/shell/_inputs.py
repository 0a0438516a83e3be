"""The inputs of this process. IPython would look them up in a database of all sessions."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from IPython.core.history import HistoryManager

from kernelbox.wire._builtins import keep_builtins

if TYPE_CHECKING:
    from IPython.core.history import InOrInOut

keep_builtins(globals())

_T = TypeVar("_T")

# What IPython takes for the number of lines that were not asked for.
_SOME = 10


class Inputs(HistoryManager):
    """IPython's history without its database, which would bring a thread and a file in HOME."""

    # Every cell sets these. Nobody observes them, and a trait costs 2 µs each time.
    _i = _ii = _iii = _i00 = ""

    def get_tail(
        self, n: int | None = _SOME, raw: bool = True, output: bool = False, include_latest: bool = False
    ) -> Iterable[tuple[int, int, InOrInOut]]:
        entries = list(self.get_range(0, 1, raw=raw, output=output))
        return _last(entries if include_latest else entries[:-1], _SOME if n is None else n)

    def search(
        self,
        pattern: str = "*",
        raw: bool = True,
        search_raw: bool = True,
        output: bool = False,
        n: int | None = None,
        unique: bool = False,
    ) -> Iterable[tuple[int, int, InOrInOut]]:
        texts = [str(text) for _, _, text in self.get_range(0, 1, raw=search_raw)]
        entries = zip(texts, self.get_range(0, 1, raw=raw, output=output), strict=False)  # a cell can change `In`
        found = [(text, entry) for text, entry in entries if fnmatchcase(text, pattern)]
        if unique:
            lasts = dict(found)  # of inputs that are the same, the last
            found = [(text, entry) for text, entry in found if lasts[text] is entry]
        matches = [entry for _, entry in found]
        return matches if n is None else _last(matches, n)


def _last(entries: list[_T], count: int) -> list[_T]:
    return entries[max(0, len(entries) - max(0, count)) :]
