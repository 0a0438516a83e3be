"""The commands that look into a kernel: variables, history, export, files."""

from __future__ import annotations

import os
import sys
import time

from kernelbox.api._configured import kernels
from kernelbox.base._limits import show_amount
from kernelbox.cli.terminal._output import answer, emit, fields_of
from kernelbox.cli.terminal._tables import ago, print_table
from kernelbox.core._executor_values import read_variables
from kernelbox.core._kernel_data import Files
from kernelbox.host.store._record import parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any

    from kernelbox.core._kernel_handle import KernelHandle

    Row = tuple[str, ...]

# Seconds that a kernel has to answer. It answers after the cell that is running.
_PATIENCE = 10.0


def variables(options: Namespace) -> int:
    """Shows what lives in a kernel."""
    kernel = _find(options)
    found = read_variables(kernel.name, kernel.query("variables", {}, patience=_PATIENCE))
    rows = [(each.name, each.type, show_size(each.size), first_line(each.preview)) for each in found]
    return _show(options, kernel, "variables", found, ("NAME", "TYPE", "SIZE", "VALUE"), rows, right=2)


def history(options: Namespace) -> int:
    """Shows the cells that a kernel has run."""
    kernel, now = _find(options), time.time()
    cells = kernel.history(options.last)
    rows: list[tuple[str, ...]] = []
    for cell in cells:
        when = f"{ago(now - parse_time(cell.began_at))} ago" if cell.began_at else "-"
        rows.append((str(cell.execution_count or "-"), cell.status, when, first_line(cell.code)))
        if cell.lost:
            rows.append(("", "", "", f"└ its variables did not last: {cell.lost}"))
    return _show(options, kernel, "cells", cells, ("CELL", "STATUS", "WHEN", "CODE"), rows, right=0)


def export(options: Namespace) -> int:
    """Prints what a kernel has run, with its outputs, as a notebook."""
    emit(_find(options).notebook())
    return 0


def files(options: Namespace) -> int:
    """Lists, reads or writes files as a kernel sees them."""
    kernel, now = _find(options), time.time()
    there = Files(lambda: kernel)
    if options.read is not None:
        for piece in there.stream(options.read):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return 0
    if options.write is not None:
        written = there.write(options.write, sys.stdin.buffer)
        return answer(options, {"written": written}, f"wrote {show_size(written)}")
    found = there.list(options.path or ".")
    rows = []
    for each in found:
        name, size = (f"{each.name}{os.sep}", "-") if each.is_dir else (each.name, show_size(each.size))
        rows.append((name, size, f"{ago(now - each.modified)} ago"))
    return _show(options, kernel, "files", found, ("NAME", "SIZE", "CHANGED"), rows, right=1)


def _show(
    options: Namespace, kernel: KernelHandle, what: str, found: list[Any], head: Row, rows: Sequence[Row], *, right: int
) -> int:
    """Shows values with all their fields as a document, or as a table in which one column has numbers."""
    if not options.pretty:
        emit({what: list(map(fields_of, found))})
    elif rows:
        print_table(head, rows, right=(right,))
    else:
        print(f"kernel {kernel.name!r} has no {what}")
    return 0


def show_size(size: float) -> str:
    """Returns a number of bytes with a unit."""
    return show_amount("memory", size, like=1000)


def first_line(text: str) -> str:
    """Returns the first line of a text that has something in it."""
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[0] + (" …" if len(lines) > 1 else "")) if lines else ""


def _find(options: Namespace) -> KernelHandle:
    here = kernels()
    return here.kernel(here.get(options.names[0]))
