"""Text for a context window: within a budget of characters, with what tells a reader most."""

from __future__ import annotations

import re
from itertools import groupby

from kernelbox.wire._output_limit import bound

# The beginning of every notice that replaces cut text.
_MARK = "[… "

# Identical lines in a row that are shown as one.
_REPEATED = 3

# Frames of libraries in a row that are named in one line. The guest shows each of them as a line without source, and
# calls only the user's own files by paths that begin at `/` or `~`.
_LIBRARY_FRAME = re.compile(r"File (?![/~<])(?P<package>[^/:]+)\S*:\d+(, in .*)?$")

# What was left out of a text that was longer than `output_char_limit`.
_CUT_BEFORE = re.compile(r"\n\[… (?P<count>[\d,]+) characters cut …\]\n")

# No line is cut to fewer characters.
_SHORTEST_LINE = 120

# A table that is cut to fewer characters says nothing; then the whole text is cut instead.
_SHORTEST_BLOCK = 150

# Below this there is no room for a head, a tail and a notice.
_LEAST = 100


def shorten(text: str, budget: int, rest: str = "") -> str:
    """Returns text with at most `budget` characters; text that fits is returned unchanged.

    Progress bars are shown as they end, repeated lines and frames of libraries are counted, long lines, tables and at
    last the whole text are cut in the middle. `rest` says where the whole text can be read.
    """
    if len(text) <= budget:
        return text
    if budget < _LEAST:
        return bound(text, budget)
    where = f"[… {len(text):,} characters in all; {rest} …]\n" if rest else ""
    room = budget - len(where)
    if room < _LEAST:
        return bound(text, budget)
    if cut := _CUT_BEFORE.search(text):
        return _mention(where, _cut_again(text, cut, room))
    lines = _final_lines(text)
    longest = max(_SHORTEST_LINE, _fair_share([len(line) + 1 for line in lines], room))
    lines = _fold([_clip(line, longest) for line in lines])
    return _mention(where, _cut("\n".join(_cut_blocks(lines, room)), len(text), room))


def _mention(where: str, short: str) -> str:
    """Returns text with a line where the first part was cut. What comes first and last keeps its place."""
    if _MARK not in short:
        return f"{short}\n{where.rstrip()}" if where else short
    place = short.rfind("\n", 0, short.index(_MARK)) + 1
    return f"{short[:place]}{where}{short[place:]}"


def estimate_tokens(text: str) -> int:
    """Returns about how many tokens a text is: four bytes of UTF-8 each, as current tokenizers count."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def _final_lines(text: str) -> list[str]:
    """Returns the lines as a terminal shows them in the end: a carriage return begins the line again."""
    lines = text.split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line for line in lines]


def _clip(line: str, most: int) -> str:
    if len(line) <= most:
        return line
    tail = most // 4
    head = most - tail - 30  # for the notice
    return f"{line[:head]} [… {len(line) - head - tail:,} characters …] {line[-tail:]}"


def _fold(lines: list[str]) -> list[str]:
    """Returns lines in which repetitions, and frames of libraries, are counted."""
    folded: list[str] = []
    for line, same in groupby(lines):
        count = sum(1 for _ in same)
        folded += [line] * count if count < _REPEATED else [line, f"[… {count - 1:,} more times …]"]
    return _fold_frames(folded)


def _fold_frames(lines: list[str]) -> list[str]:
    folded: list[str] = []
    for in_library, group in groupby(lines, lambda line: _LIBRARY_FRAME.match(line) is not None):
        frames = list(group)
        if in_library and len(frames) > 1:
            packages = dict.fromkeys(found["package"] for line in frames if (found := _LIBRARY_FRAME.match(line)))
            frames = [f"[… {len(frames)} frames in {', '.join(packages)} …]"]
        folded += frames
    return folded


def _cut_blocks(lines: list[str], room: int) -> list[str]:
    """Returns lines of which the largest blocks, such as tables, are cut so that all of them fit, if that is sensible.

    A block is what stands between empty lines.
    """
    blocks = [list(group) for _, group in groupby(lines, bool)]
    share = _fair_share([_size(block) for block in blocks], room)
    if share < _SHORTEST_BLOCK:
        return lines
    return [row for block in blocks for row in _cut_rows(block, share)]


def _fair_share(sizes: list[int], room: int) -> int:
    """Returns the most room that a block may have, if large ones get what the small ones leave."""
    for left, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * left > room:
            return room // left
        room -= size
    return room + max(sizes)


def _size(rows: list[str]) -> int:
    return sum(map(len, rows)) + len(rows)


def _cut_rows(rows: list[str], most: int) -> list[str]:
    """Returns the first and the last rows of a table or a list; the first line may be its head."""
    if _size(rows) <= most:
        return rows
    first, last = _count(rows, most * 3 // 5), _count(rows[::-1], most * 2 // 5 - 30)
    cut = len(rows) - first - last
    return [*rows[:first], f"[… {cut:,} lines …]", *rows[len(rows) - last :]] if cut > 1 else rows


def _count(rows: list[str], room: int) -> int:
    """Returns how many rows fit into a number of characters."""
    for count, row in enumerate(rows):
        room -= len(row) + 1
        if room < 0:
            return count
    return len(rows)


def _cut(text: str, size: int, budget: int) -> str:
    """Returns the head and the tail of a text, at line ends where there are some near; errors and values come last."""
    if len(text) <= budget:
        return text
    notice = _middle_notice(size)
    room = budget - len(notice)
    if room < _LEAST // 2:
        return bound(text, budget)
    return f"{_head(text, room * 2 // 5)}{notice}{_tail(text, room - room * 2 // 5)}"


def _cut_again(text: str, cut: re.Match[str], budget: int) -> str:
    """Returns the head and the tail of a text whose middle was cut before: it stays one cut."""
    head, tail = ("\n".join(_fold(_final_lines(part))) for part in (text[: cut.start()], text[cut.end() :]))
    notice = _middle_notice(len(text) - len(cut[0]) + int(cut["count"].replace(",", "")))
    room = budget - len(notice)
    half = max(room * 2 // 5, room - len(tail))
    return f"{_head(head, half)}{notice}{_tail(tail, room - min(half, len(head)))}"


def _middle_notice(size: int) -> str:
    return f"\n[… {size:,} characters in all, the middle was cut …]\n"


def _head(text: str, room: int) -> str:
    """Returns how a text begins, up to the end of a line if there is one near."""
    head = text[: max(0, room)]
    return head[:end] if len(head) < len(text) and (end := head.rfind("\n")) > len(head) // 2 else head


def _tail(text: str, room: int) -> str:
    tail = text[max(0, len(text) - max(0, room)) :]
    return tail[start + 1 :] if len(tail) < len(text) and -1 < (start := tail.find("\n")) < len(tail) // 2 else tail
