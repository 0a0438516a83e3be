"""The colours of a traceback on a terminal: where, which line, the code, and what went wrong."""

from __future__ import annotations

import re
import sys

from kernelbox.base._environment import wants_color

# `Cell In[3], line 2, in f(x)`, `File ~/code.py:3, in g()`; `----> 2     return x / 0` and `      1 def f(x):`.
_PLACE = re.compile(r"(Cell In\[\d+\]|File \S+?)(, line \d+|:\d+)?(, in .*)?")
_SOURCE = re.compile(r"(-+> *\d+|\s*\d+)( .*|)")
_ERROR = re.compile(r"([A-Za-z_][\w.]*)(: .*|)")

_CYAN, _GREEN, _BOLD_GREEN, _RED, _YELLOW, _RESET = (
    f"\x1b[{code}m" for code in ("36", "32", "1;32", "1;31", "33", "0")
)


def color_traceback(text: str) -> str:
    """Colours a traceback, unless it has colours already or the terminal has none."""
    if "\x1b" in text or not (sys.stderr.isatty() and wants_color()):
        return text
    lines = text.split("\n")
    last = max((at for at, line in enumerate(lines) if line.strip() and not line.startswith("Hint: ")), default=-1)
    return "\n".join(_color_line(line, is_error=at == last) for at, line in enumerate(lines))


def _color_line(line: str, *, is_error: bool) -> str:
    if line.startswith("Hint: "):
        return f"{_YELLOW}{line}{_RESET}"
    if found := _PLACE.fullmatch(line):
        return f"{_CYAN}{found[1]}{_RESET}{_GREEN}{found[2] or ''}{_RESET}{found[3] or ''}"
    if not is_error and (found := _SOURCE.fullmatch(line)):
        number = _BOLD_GREEN if ">" in found[1] else _GREEN
        return f"{number}{found[1]}{_RESET}{_highlight(found[2])}"
    if found := _ERROR.fullmatch(line):
        return f"{_RED}{found[1]}{_RESET}{found[2]}" if is_error or found[2] else line
    return line


def _highlight(code: str) -> str:
    from pygments import highlight
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import PythonLexer

    if not code.strip():
        return code
    indent = code[: len(code) - len(code.lstrip())]
    return indent + highlight(code.strip(), PythonLexer(), TerminalFormatter()).rstrip("\n")
