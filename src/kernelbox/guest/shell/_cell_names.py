"""What a cell is called where text names its file: `Cell In[3]`, in tracebacks, warnings and logs alike.

The file has the name that IPython gives it, `<ipython-input-3-…>`, because libraries know the code of a notebook by it:
numba, to keep what it has compiled, joblib, and profilers. So it is text that is changed, where the standard library
makes it. What writes without it keeps the file's name: faulthandler, cProfile, tracemalloc, the repr of a frame.
"""

from __future__ import annotations

import copy
import linecache
import logging
import re
import sys
import threading
import traceback
import warnings
from typing import Any

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

_FILE = re.compile(r"<ipython-input-(\d+)-[0-9a-f]{12}>")


def cell_title(file: object) -> str | None:
    """Returns the title of the cell with this file name; None if it is not the file of a cell."""
    found = _FILE.fullmatch(file) if isinstance(file, str) else None
    return found and f"Cell In[{found[1]}]"


def name_cells(text: str) -> str:
    """Returns a text with the titles of cells in the place of their files."""
    return _FILE.sub(r"Cell In[\1]", text)


def name_cells_everywhere() -> None:
    """Makes Python's own modules name cells by their titles in what they write."""
    traceback.StackSummary.format_frame_summary = _format_frame  # type: ignore[assignment,method-assign]  # for tracebacks of any kind
    warnings.WarningMessage = _Warning  # type: ignore[misc]  # whatever shows it, and in whatever form
    logging.setLogRecordFactory(_make_record)
    threading.excepthook = _show_end_of_thread
    sys.unraisablehook = _show_unraisable


_python_format_frame = traceback.StackSummary.format_frame_summary


def _format_frame(self: traceback.StackSummary, frame: traceback.FrameSummary, **kwargs: Any) -> str:
    if (title := cell_title(frame.filename)) is not None:
        frame.line  # noqa: B018  # a property: the source is looked up by the file's name, and kept
        frame = copy.copy(frame)
        frame.filename = title
    return _python_format_frame(self, frame, **kwargs)


class _Warning(warnings.WarningMessage):
    def __init__(
        self,
        message: Any,
        category: Any,
        filename: str,
        lineno: int,
        file: Any = None,
        line: Any = None,
        source: Any = None,
    ) -> None:
        if (title := cell_title(filename)) is not None:
            line, filename = linecache.getline(filename, lineno) if line is None else line, title
        super().__init__(message, category, filename, lineno, file, line, source)


def _make_record(name: str, level: int, pathname: str, *args: Any, **kwargs: Any) -> logging.LogRecord:
    return logging.LogRecord(name, level, cell_title(pathname) or pathname, *args, **kwargs)


def _show_end_of_thread(args: threading.ExceptHookArgs) -> None:
    """Does the work of `threading.excepthook`, which before Python 3.13 shows neither titles nor lines of cells."""
    if args.exc_type is SystemExit or sys.stderr is None:
        return
    name = args.thread.name if args.thread is not None else threading.get_ident()
    print(f"Exception in thread {name}:", file=sys.stderr)
    traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)


def _show_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Does the work of `sys.unraisablehook`, for the same reason."""
    if sys.stderr is None:
        return
    said = unraisable.err_msg or "Exception ignored in"
    try:
        about = "" if unraisable.object is None else f" {unraisable.object!r}"
    except Exception:  # noqa: BLE001  # the user's __repr__
        about = " <object repr() failed>"
    print(f"{said}:{about}", file=sys.stderr)
    traceback.print_exception(unraisable.exc_type, unraisable.exc_value, unraisable.exc_traceback)
