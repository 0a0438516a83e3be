"""What people see of a cell: its output as it comes, in colours where the terminal has them."""

from __future__ import annotations

import contextlib
import os
import sys

from kernelbox.api._configured import kernels
from kernelbox.base._environment import wants_color
from kernelbox.base._text import escape
from kernelbox.cli.terminal._excerpt import Excerpt
from kernelbox.cli.terminal._terminal_text import TerminalText, for_terminal
from kernelbox.cli.terminal._traceback_colors import color_traceback
from kernelbox.wire._layout import is_kernel_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from kernelbox.wire._results import ExecutionResult, OutputItem

_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}


def paint(text: str, color: str, stream: TextIO) -> str:
    """Returns text in a colour, if the stream is a terminal whose user wants colours."""
    if not color or not (stream.isatty() and wants_color()):
        return text
    return f"\x1b[{_CODES[color]}m{text}\x1b[0m"


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows on a terminal what is being waited for, and removes it afterwards."""
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(paint(f"{what} …", "dim", sys.stderr))
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextlib.contextmanager
def opening(key: str) -> Iterator[None]:
    """Says on a terminal that a kernel is being started for a name and, if so, where it was opened."""
    here = kernels()
    if is_kernel_id(key) or ((record := here.find(key)) is not None and record.alive):
        yield
        return
    with progress(f"starting kernel {key!r}"):
        yield
    if (record := here.find(key)) is not None and record.alive:
        print(paint(escape(say_opened(key)), "dim", sys.stderr), file=sys.stderr)


def say_opened(name: str) -> str:
    """Returns where a kernel was opened, by the short path of a home below this directory."""
    home = kernels().config.home
    below = home.startswith(os.getcwd() + os.sep)
    return f"opened {name!r} in {os.path.join('.', os.path.relpath(home)) if below else home}"


def show_for_model(result: ExecutionResult) -> None:
    """Prints what a model would read of a result."""
    write(for_terminal(result.text) + "\n" if result.text else "", sys.stdout)


class Screen:
    """Shows one cell: its output as it comes, within a limit of characters, and how it ended."""

    def __init__(self, limit: int = 0) -> None:
        self._out, self._err = TerminalText(), TerminalText()
        self._excerpt = Excerpt(limit)

    def show(self, item: OutputItem) -> None:
        """Prints an output."""
        if item.kind == "stream":
            kind, text = item.name or "stdout", item.text or ""
        elif item.kind in ("display_data", "execute_result", "error"):
            kind, text = item.kind, item.readable
        else:
            return
        self._print(kind, self._excerpt.begin(kind, text))

    def finish(self, result: ExecutionResult) -> None:
        """Prints what was held back, then how the execution ended if its output does not say so."""
        for kind, text in self._excerpt.end():
            self._print(kind, text)
        self._end_streams()
        if (error := result.error) is not None:
            line = f"{error.ename}: {error.evalue}"
            lines = "\n".join(error.traceback) or (line if line not in result.stderr else "")
            write(color_traceback(for_terminal(lines)) + "\n" if lines else "", sys.stderr)
        sys.stdout.flush()

    def _print(self, kind: str, text: str) -> None:
        if kind == "stdout":
            write(self._out.feed(text), sys.stdout)
        elif kind == "stderr":
            write(self._err.feed(text), sys.stderr)
        elif text:
            self._end_streams()
            shown, stream = for_terminal(text), sys.stdout
            if kind == "error":
                shown, stream = color_traceback(shown), sys.stderr
            write(shown + "\n", stream)

    def _end_streams(self) -> None:
        write(self._out.end(), sys.stdout)
        write(self._err.end(), sys.stderr)


def write(text: str, stream: TextIO) -> None:
    """Writes text at once, with escapes for characters that the stream's encoding lacks."""
    if text:
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
