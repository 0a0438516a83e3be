"""What a console shows of a cell: its output, `Out[n]`, and pictures in the terminal where it can."""

from __future__ import annotations

import sys
from collections.abc import Callable

from kernelbox.cli.console._inline_images import encode, find_protocol
from kernelbox.cli.terminal._pretty import Screen, paint, write
from kernelbox.wire._results import OutputItem


class ConsoleScreen(Screen):
    """A screen for one cell after another; `count` returns the number of the cell that runs."""

    def __init__(self, count: Callable[[], int]) -> None:
        super().__init__()
        self._count = count
        self._pictures = True
        self.at_start = True  # whether the cursor is at the start of a line

    def show(self, item: OutputItem) -> None:
        """Prints an output."""
        if item.kind == "stream" and item.text:
            self.at_start = item.text.endswith("\n")
        elif item.kind in ("display_data", "execute_result"):
            self.begin_line()
            if self._draw(item):
                return
            if item.kind == "execute_result":
                text = item.readable
                write(paint(f"Out[{self._count()}]: ", "red", sys.stdout) + ("\n" if "\n" in text else ""), sys.stdout)
        super().show(item)

    def begin_line(self) -> None:
        """Begins a new line, unless the cursor is at the start of one."""
        if not self.at_start:
            self._end_streams()
            write("\n", sys.stdout)
        self.at_start = True

    def _draw(self, item: OutputItem) -> bool:
        """Draws the picture of an output; False if it has none, or the terminal cannot."""
        found = item.image_data
        if found is None or not self._pictures:
            return False
        protocol = find_protocol()
        drawn = None if protocol is None else encode(protocol, *found)
        self._pictures = protocol is not None
        if drawn is None:
            return False
        self._end_streams()
        write(drawn + "\n", sys.stdout)
        if item.picture is not None and item.picture.path:
            print(paint(str(item.picture), "dim", sys.stdout), flush=True)
        return True
