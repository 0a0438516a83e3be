"""One run of a cell as E2B shows it: outputs go in, calls of callbacks and the execution come out."""

from __future__ import annotations

from kernelbox.e2b._e2b_values import Execution, ExecutionError, OutputMessage, Result, TimeoutException
from kernelbox.wire._results import ExecutionResult, OutputItem
from kernelbox.wire._values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Callback = Callable[[Any], Any] | None


@dataclass(slots=True)
class CodeRun:
    """Collects what a cell does."""

    on_stdout: Callback = None
    on_stderr: Callback = None
    on_result: Callback = None
    on_error: Callback = None
    execution: Execution = field(default_factory=Execution)

    def take(self, item: object) -> Any:
        """Takes one item of a stream; returns what the callback returned, which may have to be awaited."""
        match item:
            case ExecutionResult():
                return self._end(item)
            case OutputItem(kind="stream", text=str(text), name="stderr"):
                self.execution.logs.stderr.append(text)
                return _call(self.on_stderr, OutputMessage(text, error=True))
            case OutputItem(kind="stream", text=str(text)):
                self.execution.logs.stdout.append(text)
                return _call(self.on_stdout, OutputMessage(text))
            case OutputItem(kind="display_data" | "execute_result"):
                result = Result.of(item.data, is_main_result=item.kind == "execute_result")
                self.execution.results.append(result)
                return _call(self.on_result, result)
        return None

    def _end(self, result: ExecutionResult) -> Any:
        self.execution.execution_count = result.execution_count
        if result.status == "timeout":
            raise TimeoutException("the code was interrupted: a larger 'timeout' gives it more time")
        if result.error is None:
            return None
        error = result.error
        traceback = "\n".join(error.traceback) or f"{error.ename}: {error.evalue}"
        self.execution.error = ExecutionError(error.ename, error.evalue, traceback)
        return _call(self.on_error, self.execution.error)


def set_variables(envs: dict[str, str | None]) -> str:
    """Returns code that sets variables of the environment, or removes them for None; its value is the old ones."""
    change = "[e.pop(n, None) if v is None else e.__setitem__(n, v) for n, v in new.items()]"
    return f"(lambda e, new: ({{n: e.get(n) for n in new}}, {change})[0])(__import__('os').environ, {envs!r})"


def _call(callback: Callback, value: object) -> Any:
    return None if callback is None else callback(value)
