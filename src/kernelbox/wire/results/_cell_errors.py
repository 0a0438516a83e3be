"""The errors for a cell that did not succeed, and the base of all errors of kernelbox."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, Literal, Self

    from kernelbox.wire._results import ErrorInfo, ExecutionResult


class KernelBoxError(Exception):
    """The base of all errors of kernelbox."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the finished sentence and the fields, not the arguments of the constructor."""
        return _rebuild, (type(self), self.args, self.__dict__)


class _Unfinished(KernelBoxError):
    """The fields of both errors: everything the cell had written and shown, and what happened to the kernel."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.text: str | None = None
        self.images: list[Path] = []
        self.ename = self.evalue = self.traceback = ""
        self.state: Literal["kept", "lost", "rolled back"] = "kept"
        self.changed: dict[str, list[str]] | None = None
        self.result: ExecutionResult | None = None

    @classmethod
    def of(cls, result: ExecutionResult, images: Sequence[Path]) -> Self:
        """Makes the error of a result."""
        assert result.error is not None
        exc = cls(cls._sentence(result.error))
        exc.text = result.text or None
        exc.images = list(images)
        exc.ename = result.error.ename
        exc.evalue = result.error.evalue
        exc.traceback = "\n".join(result.error.traceback)
        exc.state = result.state
        exc.changed = result.changed
        exc.result = result
        return exc

    @staticmethod
    def _sentence(error: ErrorInfo) -> str:
        return error.evalue


class CodeExecutionError(_Unfinished):
    """Raised when the code in a cell fails, or its kernel dies.

    `str()` is the error and its traceback. `text` is everything a model should read: what the cell had written
    before, then the traceback. `images`, `ename`, `evalue` and `traceback` are the parts; `state` says whether the
    kernel's variables were kept or lost. `result` is the whole result.
    """

    @staticmethod
    def _sentence(error: ErrorInfo) -> str:
        head, body = f"{error.ename}: {error.evalue}", "\n".join(error.traceback)
        return head if body == head else f"{head}\n{body}"


class ExecutionTimeout(_Unfinished, TimeoutError):
    """Raised when the code in a cell takes too long; the fields are those of CodeExecutionError."""


def failure_of(result: ExecutionResult) -> CodeExecutionError | ExecutionTimeout:
    """Returns the error of a result that is not a success."""
    from pathlib import Path  # the command line needs none

    kind = ExecutionTimeout if result.status == "timeout" else CodeExecutionError
    return kind.of(result, [Path(path) for path in result.images])


def _rebuild(cls: type[KernelBoxError], args: tuple[object, ...], fields: dict[str, object]) -> KernelBoxError:
    exc = cls.__new__(cls, *args)
    exc.args = args
    exc.__dict__.update(fields)
    return exc
