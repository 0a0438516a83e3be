"""Tables of kernels and of what is in them, for people."""

from __future__ import annotations

import os
import sys

from kernelbox.base._limits import show_amount
from kernelbox.base._text import escape
from kernelbox.cli.terminal._pretty import paint
from kernelbox.host.store._record import parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from kernelbox.host.store._record import KernelRecord

STATUS_COLORS = {"idle": "green", "running": "blue", "dead": "red", "unknown": "yellow"}


_NO_TERMINAL = 10_000


def width_of(stream: TextIO) -> int:
    """Returns how many characters a line of a terminal takes; a file takes any number."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else _NO_TERMINAL
    except OSError:
        return _NO_TERMINAL


def format_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int = _NO_TERMINAL, right: Sequence[int] = ()
) -> list[str]:
    """Returns the lines of a table, the head first. `right` are the columns of numbers, aligned to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [
            cell.rjust(room) if column in right else cell.ljust(room)
            for column, (cell, room) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        lines.append(line if len(line) <= width else line[: width - 1] + "…")
    return lines


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Prints a table that fits the terminal."""
    first, *lines = format_table(head, [[escape(cell) for cell in row] for row in rows], width_of(sys.stdout), right)
    print("\n".join([paint(first, "bold", sys.stdout), *lines]))


def show_table(records: Sequence[KernelRecord]) -> None:
    """Prints one line for each kernel."""
    if not records:
        print("there are no kernels")
        return
    head = ("NAME", "STATUS", "PID", "AGE", "LAST USED", "CELLS", "MEMORY", "CPU", "SANDBOX", "PYTHON", "DIRECTORY")
    rows = [_row(record) for record in records]
    first, *lines = format_table(head, rows, width_of(sys.stdout))
    print(paint(first, "bold", sys.stdout))
    for row, line, record in zip(rows, lines, records, strict=True):
        at = line.find(row[1], max(len(each[0]) for each in [head, *rows]))
        end = at + len(row[1])
        print(f"{line[:at]}{paint(row[1], STATUS_COLORS[record.status], sys.stdout)}{line[end:]}" if at >= 0 else line)
        if record.status == "dead":
            print(paint(f"  └ {escape(record.death or '')}", "dim", sys.stdout))


# Fields that mean something to kernelbox only.
_INTERNAL = ("connection_file", "start_time", "boot_id", "cwd_identity", "environment", "python_prefix")


def show_record(record: KernelRecord) -> None:
    """Prints what is known about a kernel, one field per line."""
    for name, value in record.to_dict().items():
        if isinstance(value, dict) and name in ("limits", "usage"):
            value = ", ".join(f"{each} {_amount(record, each, amount)}" for each, amount in value.items())
        if name in ("created_at", "last_used_at"):
            since = record.age_seconds - (parse_time(value) - parse_time(record.created_at))
            value = f"{ago(since)} ago, {value[:19].replace('T', ' ')} UTC"
        if value in (None, "", {}, [], False) or name in _INTERNAL or (name, value) == ("session_name", record.name):
            continue
        color = STATUS_COLORS[record.status] if name == "status" else ""
        print(f"{name:<16} {paint(escape(str(value)), color, sys.stdout)}")


def _amount(record: KernelRecord, name: str, amount: float) -> str:
    """Formats an amount that a kernel uses or may use, both in the same unit."""
    return show_amount(name, amount, like=record.limits.get(name) or 1000)


def _row(record: KernelRecord) -> tuple[str, ...]:
    status = f"{record.status} (stale)" if record.stale else record.status
    used = ago(parse_time(record.created_at) + record.age_seconds - parse_time(record.last_used_at))
    name, cwd = escape(record.name), escape(record.cwd)
    name = name if len(name) <= 40 else name[:39] + "…"
    cells, usage = str(record.attempt_count), record.usage or {}
    memory, cpu = (_amount(record, each, usage[each]) if each in usage else "-" for each in ("memory", "cpu"))
    pid, age, sandbox = str(record.pid or "-"), ago(record.age_seconds), record.sandbox or "-"
    python = escape(record.python_version) or "-"
    return (name, status, pid, age, f"{used} ago", cells, memory, cpu, sandbox, python, cwd)


def ago(seconds: float) -> str:
    """Returns a time span in one word and a unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
