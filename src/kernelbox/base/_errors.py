"""What kernelbox raises.

    KernelBoxError
    ├── InvalidInput (ValueError)          an argument or KERNELBOX_* variable that cannot be used
    ├── KernelNotFound (LookupError)       no kernel has this name or id
    ├── KernelExists (FileExistsError)     the name is taken by a live kernel
    ├── KernelDied (ConnectionError)       the kernel ended; the sentence says how
    ├── KernelBusy (TimeoutError)          a cell runs in the kernel, which answers no queries meanwhile
    ├── CannotCopy (RuntimeError)          something in the kernel cannot be copied; `reasons` says what
    ├── CheckpointNotFound (LookupError)   the kernel has no such checkpoint
    ├── OutputNotKept (LookupError)        what was cut from a result is no longer in the kernel's log
    ├── LimitReached (RuntimeError)        a server has as many kernels or cells as it may have
    ├── StartFailed (RuntimeError)         a kernel or its template could not be started
    ├── StoreFailed (OSError)              the registry or the runtime directory cannot be used
    ├── ApprovalClosed (RuntimeError)      an approval was answered twice, or too late
    ├── ExecutorStopped (RuntimeError)     a CodeExecutor was used before start() or after stop()
    ├── ToolServerFailed (ConnectionError) an MCP server could not be reached, or closed the connection
    ├── InheritedStream (RuntimeError)     a forked process used a stream that its parent has open
    ├── MissingExtra (ImportError)         a part of kernelbox needs packages that are not installed
    ├── CodeExecutionError                 code failed in a CodeExecutor; carries its output
    └── ExecutionTimeout (TimeoutError)    code took too long in a CodeExecutor; carries the same

`kernelbox.execute` never raises what the code in a cell raises: that is part of its result. A CodeExecutor raises it.
"""

from __future__ import annotations

import errno

from kernelbox.wire.results._cell_errors import CodeExecutionError as CodeExecutionError
from kernelbox.wire.results._cell_errors import ExecutionTimeout as ExecutionTimeout
from kernelbox.wire.results._cell_errors import KernelBoxError as KernelBoxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kernelbox.wire._results import AttemptSnapshot, ExecutionResult


class InvalidInput(KernelBoxError, ValueError):
    """Raised for an argument or a setting that cannot be used; nothing has been done."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        super().__init__(f"{what} cannot be {_show(value)}: {allowed}")

    @classmethod
    def saying(cls, sentence: str) -> InvalidInput:
        """Makes one that no single value causes: something is missing, or given twice."""
        exc = cls.__new__(cls)
        exc.args = (sentence,)
        return exc


class KernelNotFound(KernelBoxError, LookupError):
    """Raised when no kernel has the given name or id."""

    def __init__(self, key: str, home: str = "") -> None:
        where = f" in {home!r}; `kernelbox list --all`" if home else "; list_kernels(), or `kernelbox list`,"
        super().__init__(f"there is no kernel {key!r}{where} shows all that you have")
        self.key = key


class KernelExists(KernelBoxError, FileExistsError):
    """Raised when the name of a new kernel belongs to a live one, or when the live one has other options.

    Also raised when a kernel would follow a `dead` one with weaker walls: a name keeps them until it is destroyed.
    """

    def __init__(self, name: str, differences: Sequence[str] = (), *, dead: bool = False) -> None:
        if dead:
            super().__init__(
                f"the kernel {name!r} that died had {'; '.join(differences)}, and the next one keeps to that; leave "
                "these out, destroy it, or choose another name"
            )
            return
        other = f", and has {'; '.join(differences)}" if differences else ""
        advice = "leave these out to use it, destroy it" if differences else "use it, destroy it"
        super().__init__(f"a kernel {name!r} is running already{other}; {advice}, or choose another name")


class KernelDied(KernelBoxError, ConnectionError):
    """Raised when there is no result that could report the death.

    `cause` says how the kernel ended, and `advice` what to do, if that is not just to open a fresh one.
    """

    def __init__(self, name: str, cause: str, advice: str = "") -> None:
        super().__init__(f"kernel {name!r} died: {cause}; {advice or f'get_or_create({name!r}) starts a fresh one'}")
        self.cause = cause
        self.advice = advice


class KernelBusy(KernelBoxError, TimeoutError):
    """Raised when a kernel does not answer a query because a cell runs in it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"kernel {name!r} is busy; interrupt it, or ask again when it is idle")


class CannotCopy(KernelBoxError, RuntimeError):
    """Raised when a live kernel cannot be branched, checkpointed or rolled back; it continues unchanged.

    `reasons` are sentences: what is in the way, and what to do about it.
    """

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        super().__init__(f"kernel {name!r} cannot be copied: {'; '.join(reasons)}")
        self.reasons = list(reasons)


class CheckpointNotFound(KernelBoxError, LookupError):
    """Raised when a kernel has no such checkpoint. `why` is set if it was dropped without being asked for."""

    def __init__(self, name: str, wanted: int | str | None = None, why: str = "") -> None:
        which = "no checkpoint" if wanted is None else f"no checkpoint {wanted!r}"
        dropped = f" any more: {why}" if why else ""
        super().__init__(f"kernel {name!r} has {which}{dropped}; checkpoints(), or `kernelbox checkpoints`, lists them")
        self.why = why


class OutputNotKept(KernelBoxError, LookupError):
    """Raised by `result.more` when the log of the kernel does not have the output."""

    def __init__(self, name: str, execution_id: str, why: str) -> None:
        super().__init__(
            f"the output of execution {execution_id} of kernel {name!r} is not kept: {why}; "
            "run the cell again with a higher `output_char_limit`"
        )


class LimitReached(KernelBoxError, RuntimeError):
    """Raised by a server that has as many kernels or cells as it may have, or is stopping; nothing has been done.

    `of_server` says whether the limit is the whole server's or one kernel's; `retry_after` is in seconds.
    """

    def __init__(self, sentence: str, *, of_server: bool, retry_after: int = 1, stopping: bool = False) -> None:
        super().__init__(sentence)
        self.of_server = of_server
        self.retry_after = retry_after
        self.stopping = stopping


class StartFailed(KernelBoxError, RuntimeError):
    """Raised when a kernel could not be started."""


class StoreFailed(KernelBoxError, OSError):
    """Raised when the registry or the runtime directory cannot be read or written."""

    @classmethod
    def because(cls, exc: OSError, path: str, doing: str = "write") -> StoreFailed:
        """Makes one for an error of the system. A name inside an open directory means nothing to a reader."""
        where = exc.filename if str(exc.filename).startswith("/") else path
        advice = _ADVICE.get(exc.errno or 0, "set KERNELBOX_HOME to a directory that you can write to")
        return cls(f"cannot {doing} {where!r}: {exc.strerror or exc}; {advice}")


# Errors that say nothing about a kernel: this process has too many open files, or the system too little memory.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


def is_exhausted(exc: BaseException) -> bool:
    """Tells whether an error, or the cause of a StoreFailed, is one of these."""
    if isinstance(exc, StoreFailed) and exc.__cause__ is not None:
        exc = exc.__cause__
    return isinstance(exc, OSError) and exc.errno in EXHAUSTED


_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, or set KERNELBOX_HOME to a directory on another disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or set KERNELBOX_HOME to a directory on another disk",
    errno.EROFS: "the disk is read-only: set KERNELBOX_HOME to a directory that you can write to",
    errno.ENAMETOOLONG: "set KERNELBOX_HOME to a directory with a shorter path",
    errno.EMFILE: "this process has too many open files: raise its limit (ulimit -n)",
    errno.ENFILE: "the system has too many open files",
}


class ApprovalClosed(KernelBoxError, RuntimeError):
    """Raised by a second answer to an approval request, and by a late one."""

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
            "this stream belongs to the process that this one was forked from, which still uses it; start another "
            "execution here"
        )


class MissingExtra(KernelBoxError, ImportError):
    """Raised by a part of kernelbox that needs packages beyond the default install; `extra` names what to install."""

    def __init__(self, extra: str, purpose: str, lacking: str) -> None:
        wanted = f"{installer()} 'kernelbox[{extra}]'"
        super().__init__(f"{purpose} need more packages ({lacking} is missing): {wanted}")
        self.extra = extra

    @classmethod
    def of_framework(cls, package: str, lacking: str) -> MissingExtra:
        """Makes one for an integration whose framework is not installed."""
        exc = cls.__new__(cls)
        exc.args = (f"this integration needs {package} ({lacking} is missing): {installer()} {package}",)
        exc.extra = package
        return exc


def installer() -> str:
    """Returns the command that installs packages for this interpreter: environments that uv has made have no pip."""
    import sys
    from importlib.util import find_spec
    from shutil import which

    pip = f"{sys.executable} -m pip install"
    if find_spec("pip") is not None:
        return pip
    return f"uv pip install --python {sys.executable}" if which("uv") else f"{sys.executable} -m ensurepip && {pip}"


def attach_attempts(exc: BaseException, attempts: list[AttemptSnapshot]) -> None:
    """Adds the attempts made so far to an exception that ends a retry."""
    exc.attempts = attempts  # type: ignore[attr-defined]  # read by the code that catches it
    exc.add_note(f"kernelbox: raised by on_error_fn after {len(attempts)} attempt(s); see .attempts")


def attach_result(exc: BaseException, result: ExecutionResult | None, missed: list[Any]) -> None:
    """Adds the result of a cell, and the events that were not yielded, to the exception that stopped it."""
    exc.result = result  # type: ignore[attr-defined]  # read by the code that catches it
    exc.missed = missed  # type: ignore[attr-defined]
    if result is not None and result.error is not None:
        exc.add_note(f"kernelbox: {result.error.evalue}")


def _show(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # the caller's own class, or a whole number of more than 4,300 digits
        return f"this {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}… ({len(value if isinstance(value, str) else text):,} characters)"
