"""Small parts of the standard library for modules that every call of the command line imports.

`contextlib`, `functools`, `threading`, `signal` and `weakref` load `collections`, `enum` and more, which takes longer
than a whole `kernelbox exec` does otherwise. These parts do the same without that. Other modules use the standard ones.
"""

from __future__ import annotations

from _thread import RLock
from _thread import allocate_lock as Lock  # as `threading` calls it
from _weakref import ref

__all__ = ["Flag", "Lock", "RLock", "contextmanager", "ref", "signal", "suppress", "wraps"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from contextlib import contextmanager, suppress
    from functools import wraps
    from types import TracebackType
    from typing import Any
else:
    import _signal as signal  # the same functions; it has numbers where `signal` makes enumerations

    def contextmanager(function):
        """Makes a context manager of a generator function, as `contextlib.contextmanager` does."""

        def make(*args: Any, **options: Any) -> _Context:
            return _Context(function(*args, **options))

        return wraps(function)(make)

    def wraps(function):
        """Gives a function the name, the documentation and the signature of another, as `functools.wraps` does."""

        def dress(wrapper):
            for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
                setattr(wrapper, name, getattr(function, name))
            wrapper.__dict__.update(function.__dict__)
            wrapper.__wrapped__ = function
            return wrapper

        return dress

    class suppress:  # as `contextlib` calls it
        """Suppresses these exceptions, and continues after the block."""

        __slots__ = ("_kinds",)

        def __init__(self, *kinds: type[BaseException]) -> None:
            self._kinds = kinds

        def __enter__(self) -> None:
            pass

        def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> bool:
            return kind is not None and issubclass(kind, self._kinds)


class Flag:
    """An event that a thread waits for, and that happens once: like `threading.Event`."""

    __slots__ = ("_happened", "_lock")

    def __init__(self) -> None:
        self._happened = False
        self._lock = Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wakes the thread that waits; does nothing the second time. One thread calls it."""
        if not self._happened:
            self._happened = True
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Returns whether it happens within this many seconds."""
        happened = self._lock.acquire(timeout=timeout)
        if happened:
            self._lock.release()
        return happened


class _Context:
    """A generator as a context manager: it yields once, where the block runs."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Any) -> None:
        self._steps = steps

    def __enter__(self) -> Any:
        return next(self._steps)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            if error is None:
                next(self._steps)
            else:
                self._steps.throw(error)
        except StopIteration as exc:
            return error is not None and exc is not error
        except BaseException as exc:
            wrapped = isinstance(exc, RuntimeError) and isinstance(error, StopIteration)  # PEP 479
            if exc is error or (wrapped and exc.__cause__ is error):
                assert error is not None
                error.__traceback__ = traceback  # without the lines of the generator
                return False
            raise
        raise RuntimeError("the generator of a context manager yields once")
