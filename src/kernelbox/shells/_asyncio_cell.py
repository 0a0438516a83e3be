"""A cell that a CodeExecutor runs: what it shows while it runs, and its end as a result or an exception."""

from __future__ import annotations

from pathlib import Path

from kernelbox.base._errors import CodeExecutionError, ExecutionTimeout
from kernelbox.core._executor_values import CodeExecutionResult
from kernelbox.wire._bounded import bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.core._images import ImageFiles
    from kernelbox.shells._asyncio import Run
    from kernelbox.shells._asyncio_asks import Asks
    from kernelbox.wire._results import ExecutionResult, OutputItem


# What the user of an executor does when its kernel has died.
ADVICE = "await executor.reset() for a fresh one"


class ExecutorCell:
    """A cell that a CodeExecutor runs: its execution, its asks and its images."""

    def __init__(self, run: Run, asks: Asks, images: ImageFiles) -> None:
        self.run = run
        self.asks = asks
        self.images = images
        self.lines = Lines()
        self._cancelled = False

    def cancel(self) -> None:
        """Begins to stop the cell, whose end is then no error."""
        self._cancelled = True
        self.run.cancel()

    def conclude(self) -> CodeExecutionResult:
        """Turns the end of the execution into a result or an exception."""
        result, images = self.run.execution.result, [Path(path) for path in self.images.paths]
        assert result is not None
        if self.asks.failure is not None:
            raise self.asks.failure
        limit = self.run.execution.request.text_limit
        self.images.conclude(result, limit)
        if result.status == "timeout":
            raise ExecutionTimeout.of(result, images)
        if self._cancelled and result.ending in ("interrupted", "restarted", "never ran"):
            text = bound(_written(result), limit)
            return CodeExecutionResult(text or None, images, result.changed, cancelled=True)
        if result.error is not None:
            if result.ending == "died":
                result.error.evalue += f"; {ADVICE}"
            raise CodeExecutionError.of(result, images)
        return CodeExecutionResult(result.text or None, images, result.changed)


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


def _written(result: ExecutionResult) -> str:
    """Returns what an interrupted cell had written, without the traceback of the interrupt."""
    lines = Lines()
    return "".join(lines.add(item) for item in result.outputs if item.kind != "error").rstrip()
