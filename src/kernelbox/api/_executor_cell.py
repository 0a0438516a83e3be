"""A cell that a CodeExecutor runs, and its text as it comes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.core._images import ImageFiles
    from kernelbox.shells._asyncio import Run
    from kernelbox.shells._asyncio_asks import Asks
    from kernelbox.wire._results import ExecutionResult, OutputItem


class ExecutorCell:
    """A cell that a CodeExecutor runs: its execution, its asks and its images."""

    def __init__(self, run: Run, asks: Asks, images: ImageFiles) -> None:
        self.run = run
        self.asks = asks
        self.images = images
        self.lines = Lines()
        self.cancelled = False


class Lines:
    """Puts what a cell shows on lines of its own between what it writes, as in the result's text."""

    def __init__(self) -> None:
        self._at_start = True

    def add(self, item: OutputItem) -> str:
        text = item.readable
        if not text or item.kind == "update_display_data":
            return ""
        if item.kind == "stream":
            self._at_start = text.endswith("\n")
            return text
        before, self._at_start = "" if self._at_start else "\n", True
        return f"{before}{text.rstrip()}\n"


def written(result: ExecutionResult) -> str | None:
    """Returns what an interrupted cell had written, without the traceback of the interrupt."""
    lines = Lines()
    return "".join(lines.add(item) for item in result.outputs if item.kind != "error").rstrip() or None
