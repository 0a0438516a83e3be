"""What kernelbox raises.

    KernelBoxError
    ├── InvalidInput (ValueError)          an argument or KERNELBOX_* variable that cannot be used
    ├── KernelNotFound (LookupError)       no kernel has this name or id
    ├── KernelExists (FileExistsError)     the name is taken by a live kernel
    ├── KernelDied (ConnectionError)       the kernel ended; the sentence says how
    ├── KernelBusy (TimeoutError)          a cell runs in the kernel, which answers no question meanwhile
    ├── LimitReached (RuntimeError)        a server has as many kernels or cells as it may have
    ├── StartFailed (RuntimeError)         a kernel or its template could not be started
    ├── StoreFailed (OSError)              the registry or the runtime directory cannot be used
    ├── ApprovalClosed (RuntimeError)      an approval was answered twice, or too late
    ├── ExecutorStopped (RuntimeError)     a CodeExecutor was used before start() or after stop()
    ├── ToolServerFailed (ConnectionError) an MCP server could not be reached, or left
    ├── InheritedStream (RuntimeError)     a fork went on with a stream that its parent has open
    ├── CodeExecutionError                 code failed in a CodeExecutor; carries what it had written
    └── ExecutionTimeout (TimeoutError)    code took too long in a CodeExecutor; carries the same

What the code in a cell does is never raised by `kernelbox.execute`: it is a result. A CodeExecutor raises it.
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any, Literal, Self

    from kernelbox.wire._results import AttemptSnapshot, ErrorInfo, ExecutionResult


class KernelBoxError(Exception):
    """The base of all of them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the finished sentence and the fields, whatever the constructor was given."""
        return _rebuild, (type(self), self.args, self.__dict__)


class InvalidInput(KernelBoxError, ValueError):
    """Raised for an argument or a setting that cannot be used; nothing has been done."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        super().__init__(f"{what} cannot be {_show(value)}: {allowed}")

    @classmethod
    def saying(cls, sentence: str) -> InvalidInput:
        """Makes one for what no single value is to blame for: something is missing, or is there twice."""
        exc = cls.__new__(cls)
        exc.args = (sentence,)
        return exc


class KernelNotFound(KernelBoxError, LookupError):
    """Raised when no kernel has the name or id that was given."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no kernel {key!r}; list_kernels(), or `kernelbox list`, shows those there are")
        self.key = key


class KernelExists(KernelBoxError, FileExistsError):
    """Raised when a kernel is to be created under the name of a live one, or the live one is not what was asked for."""

    def __init__(self, name: str, differences: Sequence[str] = ()) -> None:
        other = f", and has {'; '.join(differences)}" if differences else ""
        advice = "leave these out to use it, destroy it" if differences else "use it, destroy it"
        super().__init__(f"a kernel {name!r} is running already{other}; {advice}, or choose another name")


class KernelDied(KernelBoxError, ConnectionError):
    """Raised where there is no result to report a death in; `cause` says how the kernel ended."""

    def __init__(self, name: str, cause: str, advice: str = "") -> None:
        super().__init__(f"kernel {name!r} died: {cause}; {advice or f'get_or_create({name!r}) starts a fresh one'}")
        self.cause = cause


class KernelBusy(KernelBoxError, TimeoutError):
    """Raised when a kernel does not answer a question because a cell runs in it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"kernel {name!r} is busy; interrupt it, or ask again when it is idle")


class LimitReached(KernelBoxError, RuntimeError):
    """Raised by a server that has as much to do as it may have; nothing has been done.

    `of_server` says whether it is the server as a whole, not one kernel; `retry_after` is in seconds.
    """

    def __init__(self, sentence: str, *, of_server: bool, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.of_server = of_server
        self.retry_after = retry_after


class StartFailed(KernelBoxError, RuntimeError):
    """Raised when a kernel could not be started."""


class StoreFailed(KernelBoxError, OSError):
    """Raised when the registry or the runtime directory cannot be read or written."""

    @classmethod
    def because(cls, exc: OSError, path: str, doing: str = "write") -> StoreFailed:
        """Builds the sentence for what the system refused."""
        advice = _ADVICE.get(exc.errno or 0, "set KERNELBOX_HOME to a directory that you can write to")
        return cls(f"cannot {doing} {exc.filename or path!r}: {exc.strerror or exc}; {advice}")


# What the system says when it is we who have too much open, or it has too little memory: nothing about a kernel.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, or set KERNELBOX_HOME to a directory on another disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or set KERNELBOX_HOME to a directory on another disk",
    errno.EROFS: "the disk is read-only: set KERNELBOX_HOME to a directory that you can write to",
    errno.ENAMETOOLONG: "set KERNELBOX_HOME to a directory with a shorter path",
    errno.EMFILE: "this process has too many open files: raise its limit (ulimit -n)",
    errno.ENFILE: "the system has too many open files",
}


class ApprovalClosed(KernelBoxError, RuntimeError):
    """Raised by a second answer to an approval request, and by one that comes too late."""

    def __init__(self, call: str, outcome: str) -> None:
        super().__init__(f"{call:.200} was already {outcome}; an approval is answered once, while the cell waits")


class ExecutorStopped(KernelBoxError, RuntimeError):
    """Raised by a CodeExecutor that is not running."""

    def __init__(self) -> None:
        super().__init__("the executor is not running; use `async with CodeExecutor() as executor`, or await start()")


class ToolServerFailed(KernelBoxError, ConnectionError):
    """Raised when an MCP server cannot be started, reached or understood."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"tool server {server!r}: {why}")


class InheritedStream(KernelBoxError, RuntimeError):
    """Raised in a forked process that reads a stream of the process it was forked from."""

    def __init__(self) -> None:
        super().__init__(
            "this stream belongs to the process that this one was forked from, which goes on with it; run code of "
            "your own here"
        )


class _Unfinished(KernelBoxError):
    """What both ways to fail carry: everything the cell had written and shown, and what became of the kernel."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.text: str | None = None
        self.images: list[Path] = []
        self.ename = self.evalue = self.traceback = ""
        self.state: Literal["kept", "lost"] = "kept"
        self.changed: dict[str, list[str]] | None = None

    @classmethod
    def of(cls, result: ExecutionResult, images: list[Path]) -> Self:
        """Makes the error of a result."""
        assert result.error is not None
        exc = cls(cls._sentence(result.error))
        exc.text = result.text or None
        exc.images = images
        exc.ename = result.error.ename
        exc.evalue = result.error.evalue
        exc.traceback = "\n".join(result.error.traceback)
        exc.state = result.state
        exc.changed = result.changed
        return exc

    @staticmethod
    def _sentence(error: ErrorInfo) -> str:
        return error.evalue


class CodeExecutionError(_Unfinished):
    """Raised when the code in a cell fails, or its kernel dies.

    `str()` is the error and its traceback. `text` is everything a model should read: what the cell had written
    before, then the traceback. `images`, `ename`, `evalue` and `traceback` are the parts; `state` says whether the
    kernel's variables were kept or lost.
    """

    @staticmethod
    def _sentence(error: ErrorInfo) -> str:
        head, body = f"{error.ename}: {error.evalue}", "\n".join(error.traceback)
        return head if body == head else f"{head}\n{body}"


class ExecutionTimeout(_Unfinished, TimeoutError):
    """Raised when the code in a cell takes too long; the fields are those of CodeExecutionError."""


def attach_attempts(exc: BaseException, attempts: list[AttemptSnapshot]) -> None:
    """Leaves the attempts made so far on an exception that ends a retry."""
    exc.attempts = attempts  # type: ignore[attr-defined]  # read by the code that catches it
    exc.add_note(f"kernelbox: raised by on_error_fn after {len(attempts)} attempt(s); see .attempts")


def attach_result(exc: BaseException, result: ExecutionResult | None, missed: list[Any]) -> None:
    """Leaves what a cell had come to on the exception that stopped it, and the events that were not yielded."""
    exc.result = result  # type: ignore[attr-defined]  # read by the code that catches it
    exc.missed = missed  # type: ignore[attr-defined]
    if result is not None and result.error is not None:
        exc.add_note(f"kernelbox: {result.error.evalue}")


def _rebuild(cls: type[KernelBoxError], args: tuple[object, ...], fields: dict[str, object]) -> KernelBoxError:
    exc = cls.__new__(cls, *args)
    exc.args = args
    exc.__dict__.update(fields)
    return exc


def _show(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # the caller's own class, or a whole number of more than 4,300 digits
        return f"this {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}… ({len(value if isinstance(value, str) else text):,} characters)"
