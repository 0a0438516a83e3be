"""DSPy: an interpreter for `dspy.RLM` and other modules that run code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelbox.api._kernel import Kernel
from kernelbox.base._errors import KernelBoxError
from kernelbox.integrations._adapting import needs

with needs("dspy"):
    from dspy.primitives.code_interpreter import CodeExecutionError as FailedCode
    from dspy.primitives.code_interpreter import CodeInterpreterError, FinalOutput


# How a cell hands over its answer: SUBMIT keeps it in a variable, and ends the cell. `_fields` are its names.
_SUBMIT = """
class _Submitted(BaseException): pass
def SUBMIT(*args, **named):
    global _submitted
    _submitted = {**dict(zip(_fields or ["output"], args)), **named}
    raise _Submitted()
"""


class KernelboxInterpreter:
    """Runs code in a kernel from `start()` to `shutdown()`. Further options are those of `Kernel`."""

    execution_instructions = (
        "Code runs in a persistent IPython kernel with the installed packages. Variables last from call to call. "
        "Tools and SUBMIT are global functions."
    )

    def __init__(
        self,
        tools: dict[str, Callable[..., Any]] | None = None,
        output_fields: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        self.tools, self.output_fields = dict(tools or {}), output_fields
        self._options = options
        self._kernel: Kernel | None = None

    def start(self) -> None:
        if self._kernel is None:
            self._kernel = Kernel(**self._options)
            self._run(self._kernel, _SUBMIT)

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        self.start()
        assert self._kernel is not None
        fields = [field["name"] for field in self.output_fields or []]
        for name, value in {"_fields": fields, **(variables or {})}.items():
            self._kernel.set(name, value)
        return self._run(self._kernel, code)

    def _run(self, kernel: Kernel, code: str) -> Any:
        try:
            result = kernel.execute(code, tools=self.tools)
            if result.error is not None and result.error.ename == "_Submitted":
                return FinalOutput(kernel["_submitted"])
        except KernelBoxError as exc:
            raise CodeInterpreterError(str(exc)) from exc
        if result.error is None:
            return result.text
        if result.error.ename == "SyntaxError":
            raise SyntaxError(result.error.evalue)
        if result.state == "lost":
            self.shutdown()  # the next kernel needs SUBMIT
            raise CodeInterpreterError(str(result))
        raise FailedCode(str(result))

    def shutdown(self) -> None:
        if self._kernel is not None:
            self._kernel.destroy()
            self._kernel = None
