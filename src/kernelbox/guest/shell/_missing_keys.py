"""The keys among which a KeyError did not find its own: those of a dict, or the columns of a table."""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Iterable
from types import CodeType, FrameType, TracebackType
from typing import Any

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Names that are looked at, and frames, from the innermost.
_MOST_KEYS = 750
_MOST_FRAMES = 50

_LIBRARIES = ("pandas", "polars")

# The local variables under which a method of a table or index, or a function that works on one, has it.
_TABLES = ("self", "obj", "df", "left", "right")


def find_keys(tb: TracebackType | None) -> Iterable[object]:
    """Returns the keys of the object that was asked; no code of the user is called."""
    frames: list[tuple[FrameType, int]] = []
    while tb is not None:
        frames.append((tb.tb_frame, tb.tb_lasti))
        tb = tb.tb_next
    for frame, at in reversed(frames[-_MOST_FRAMES:]):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _LIBRARIES:
            for name in _TABLES:
                if columns := _columns(frame.f_locals.get(name)):
                    return columns
            continue
        found = _subscripted(frame, at)
        if type(found) is dict:
            return list(itertools.islice(found, _MOST_KEYS))
        if columns := _columns(found):
            return columns
    return ()


def _columns(table: Any) -> list[object]:
    """Returns the names of the columns of a table of pandas or polars, or of what a Series or an index holds."""
    kind = type(table)
    if kind.__module__.partition(".")[0] not in _LIBRARIES:
        return []
    if kind.__name__ in ("DataFrame", "LazyFrame"):
        return list(table.columns)[:_MOST_KEYS]
    if kind.__name__ == "Series":
        return list(getattr(table, "index", ()))[:_MOST_KEYS]
    return list(table)[:_MOST_KEYS] if kind.__name__ == "Index" else []


def _subscripted(frame: FrameType, at: int) -> object:
    """Returns the object before the brackets that a frame was at; None if that is not a plain lookup."""
    text = _source(frame.f_code, at)
    try:
        tree = ast.parse(text.strip(), mode="eval").body if text else None
    except SyntaxError:
        return None
    return _look_up(tree.value, frame) if isinstance(tree, ast.Subscript) else None


def _look_up(node: ast.expr, frame: FrameType) -> object:
    """Follows a name, and lookups of constants in dicts and lists; no other code runs."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        around, key = _look_up(node.value, frame), node.slice.value
        if type(around) is dict and type(key) in (str, int):
            return around.get(key)
        if type(around) is list and type(key) is int and -len(around) <= key < len(around):
            return around[key]
    return None


def _source(code: CodeType, at: int) -> str:
    """Returns the source of the expression that an instruction belongs to, if it is on one line."""
    position = next(itertools.islice(code.co_positions(), at // 2, None), None)
    if position is None or None in position:
        return ""
    line, end_line, column, end_column = position
    if line is None or line != end_line:
        return ""
    return linecache.getline(code.co_filename, line).encode()[column:end_column].decode("utf-8", "replace")
