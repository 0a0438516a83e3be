"""What kernelbox raises.

    KernelBoxError
    ├── InvalidInput (ValueError)          an argument or KERNELBOX_* variable that cannot be used
    ├── KernelNotFound (LookupError)       no kernel has this name or id
    ├── KernelExists (FileExistsError)     the name is taken by a live kernel
    ├── KernelDied (ConnectionError)       the kernel ended; the sentence says how
    ├── StartFailed (RuntimeError)         a kernel or its template could not be started
    └── StoreFailed (OSError)              the registry or the runtime directory cannot be used

What the code in a cell does is never raised by `execute`: it is a result.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.wire._results import AttemptSnapshot


class KernelBoxError(Exception):
    """The base of all of them."""


class InvalidInput(KernelBoxError, ValueError):
    """Raised for an argument or a setting that cannot be used; nothing has been done."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        super().__init__(f"{what} cannot be {_show(value)}: {allowed}")


class KernelNotFound(KernelBoxError, LookupError):
    """Raised when no kernel has the name or id that was given."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no kernel {key!r}; list_kernels() shows those there are")


class KernelExists(KernelBoxError, FileExistsError):
    """Raised when a kernel is to be created under the name of a live one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a kernel {name!r} is running already; use it, destroy it, or choose another name")


class KernelDied(KernelBoxError, ConnectionError):
    """Raised where there is no result to report a death in."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"kernel {name!r} died: {cause}; get_or_create({name!r}) starts a fresh one")


class StartFailed(KernelBoxError, RuntimeError):
    """Raised when a kernel could not be started."""


class StoreFailed(KernelBoxError, OSError):
    """Raised when the registry or the runtime directory cannot be read or written."""


def attach_attempts(exc: BaseException, attempts: list[AttemptSnapshot]) -> None:
    """Leaves the attempts made so far on an exception that ends a retry."""
    exc.attempts = attempts  # type: ignore[attr-defined]  # read by whoever catches it
    exc.add_note(f"kernelbox: raised by on_error_fn after {len(attempts)} attempt(s); see .attempts")


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"
