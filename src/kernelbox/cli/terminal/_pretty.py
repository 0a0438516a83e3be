"""What `--pretty` prints for people: text as it comes, colours where the terminal has them, tables."""

from __future__ import annotations

import contextlib
import sys

from kernelbox.base._environment import wants_color
from kernelbox.base._limits import show_amount
from kernelbox.base._text import escape
from kernelbox.cli.terminal._excerpt import Excerpt
from kernelbox.cli.terminal._terminal_text import TerminalText, for_terminal
from kernelbox.host.store._record import parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from kernelbox.host.store._record import KernelRecord
    from kernelbox.wire._results import ExecutionResult, OutputItem

_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
# An amount in units of 1,000.
_DECIMAL = 1000

_STATUS = {"idle": "green", "running": "blue", "dead": "red", "unknown": "yellow"}


def paint(text: str, color: str, stream: TextIO) -> str:
    """Returns text in a colour, if the stream is a terminal whose user wants colours."""
    if not (stream.isatty() and wants_color()):
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
        if result.error is not None:
            lines = "\n".join(result.error.traceback) or f"{result.error.ename}: {result.error.evalue}"
            _write(color_traceback(for_terminal(lines)) + "\n", sys.stderr)
        if result.state == "lost":
            print(paint("the kernel's variables are lost", "yellow", sys.stderr), file=sys.stderr)
        sys.stdout.flush()

    def _print(self, kind: str, text: str) -> None:
        if kind == "stdout":
            _write(self._out.feed(text), sys.stdout)
        elif kind == "stderr":
            _write(self._err.feed(text), sys.stderr)
        elif text:
            self._end_streams()
            shown, stream = for_terminal(text), sys.stdout
            if kind == "error":
                shown, stream = color_traceback(shown), sys.stderr
            _write(shown + "\n", stream)

    def _end_streams(self) -> None:
        _write(self._out.end(), sys.stdout)
        _write(self._err.end(), sys.stderr)


def color_traceback(text: str) -> str:
    """Colours a traceback, unless it has colours already or the terminal has none."""
    if "\x1b" in text or not (sys.stderr.isatty() and wants_color()):
        return text
    from pygments import highlight
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import PythonTracebackLexer

    return highlight(text, PythonTracebackLexer(), TerminalFormatter()).rstrip("\n")


def show_table(records: Sequence[KernelRecord]) -> None:
    """Prints one line for each kernel."""
    if not records:
        print("there are no kernels")
        return
    head = ("NAME", "STATUS", "PID", "AGE", "LAST USED", "CELLS", "MEMORY", "CPU", "SANDBOX", "DIRECTORY")
    rows = [_row(record) for record in records]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    print(paint(_line(head, widths), "bold", sys.stdout))
    for (name, status, *rest), record in zip(rows, records, strict=True):
        shown = paint(status.ljust(widths[1]), _STATUS[record.status], sys.stdout)
        print(f"{name.ljust(widths[0])}  {shown}  {_line(rest, widths[2:])}")
        if record.status == "dead":
            print(paint(f"  └ {escape(record.death or '')}", "dim", sys.stdout))


def show_record(record: KernelRecord) -> None:
    """Prints all that is known about a kernel, one field per line."""
    for name, value in record.to_dict().items():
        if isinstance(value, dict) and name in ("limits", "usage"):
            value = ", ".join(f"{each} {_amount(record, each, amount)}" for each, amount in value.items())
        if value not in (None, "", {}, [], False):
            print(f"{name:<16} {escape(str(value))}")


def _amount(record: KernelRecord, name: str, amount: float) -> str:
    """Formats an amount that a kernel uses or may use, both in the same unit."""
    return show_amount(name, amount, like=record.limits.get(name) or _DECIMAL)


def _row(record: KernelRecord) -> tuple[str, ...]:
    status = f"{record.status} (stale)" if record.stale else record.status
    used = _ago(parse_time(record.created_at) + record.age_seconds - parse_time(record.last_used_at))
    name, cwd = escape(record.name), escape(record.cwd)
    name = name if len(name) <= 40 else name[:39] + "…"
    cells, usage = str(record.attempt_count), record.usage or {}
    memory, cpu = (_amount(record, each, usage[each]) if each in usage else "-" for each in ("memory", "cpu"))
    pid, age, sandbox = str(record.pid or "-"), _ago(record.age_seconds), record.sandbox or "-"
    return (name, status, pid, age, f"{used} ago", cells, memory, cpu, sandbox, cwd)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _write(text: str, stream: TextIO) -> None:
    """Writes text at once, with escapes for characters that the stream's encoding lacks."""
    if text:
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
