"""The commands that look into a kernel: variables, history, files."""

from __future__ import annotations

import os
import sys
import time

from kernelbox.api._configured import kernels
from kernelbox.cli.terminal._output import emit
from kernelbox.cli.terminal._tables import ago, print_table
from kernelbox.core._executor_values import read_variables
from kernelbox.core._kernel_data import Files
from kernelbox.host.store._record import parse_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from kernelbox.core._kernel_handle import KernelHandle

# Seconds that a kernel has to answer. It answers after the cell that is running.
_PATIENCE = 10.0

_UNITS = ("B", "kB", "MB", "GB", "TB")


def variables(options: Namespace) -> int:
    """Shows what lives in a kernel."""
    kernel = _find(options)
    found = read_variables(kernel.name, kernel.query("variables", {}, patience=_PATIENCE))
    if not options.pretty:
        emit({"variables": [{name: getattr(each, name) for name in each.__match_args__} for each in found]})
    elif not found:
        print(f"kernel {kernel.name!r} has no variables")
    else:
        rows = [(each.name, each.type, show_size(each.size), first_line(each.preview)) for each in found]
        print_table(("NAME", "TYPE", "SIZE", "VALUE"), rows, right=(2,))
    return 0


def history(options: Namespace) -> int:
    """Shows the cells that a kernel has run."""
    kernel = _find(options)
    cells = kernel.history(options.last)
    if not options.pretty:
        emit({"cells": [{name: getattr(each, name) for name in each.__match_args__} for each in cells]})
    elif not cells:
        print(f"kernel {kernel.name!r} has run nothing")
    else:
        now = time.time()
        rows: list[tuple[str, ...]] = []
        for cell in cells:
            when = f"{ago(now - parse_time(cell.began_at))} ago" if cell.began_at else "-"
            rows.append((str(cell.execution_count or "-"), cell.status, when, first_line(cell.code)))
            if cell.lost:
                rows.append(("", "", "", f"└ the variables were lost: {cell.lost}"))
        print_table(("CELL", "STATUS", "WHEN", "CODE"), rows, right=(0,))
    return 0


def files(options: Namespace) -> int:
    """Lists, reads or writes files as a kernel sees them."""
    kernel = _find(options)
    there = Files(lambda: kernel)
    if options.read is not None:
        for piece in there.stream(options.read):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return 0
    if options.write is not None:
        written = there.write(options.write, sys.stdin.buffer)
        if options.pretty:
            print(f"wrote {show_size(written)}")
        else:
            emit({"written": written})
        return 0
    found = there.list(options.path or ".")
    if not options.pretty:
        emit({"files": [{name: getattr(each, name) for name in each.__match_args__} for each in found]})
    elif not found:
        print("there are no files")
    else:
        now = time.time()
        rows = [
            (
                each.name + (os.sep if each.is_dir else ""),
                "-" if each.is_dir else show_size(each.size),
                f"{ago(now - each.modified)} ago",
            )
            for each in found
        ]
        print_table(("NAME", "SIZE", "CHANGED"), rows, right=(1,))
    return 0


def show_size(size: float) -> str:
    """Returns a number of bytes with a unit."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def first_line(text: str) -> str:
    """Returns the first line of a text that has something in it."""
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[0] + (" …" if len(lines) > 1 else "")) if lines else ""


def _find(options: Namespace) -> KernelHandle:
    here = kernels()
    return here.kernel(here.get(options.names[0]))
