"""Suggestions for words that are almost right: names of the package, keyword arguments, values of a closed set."""

from __future__ import annotations

from kernelbox.base._light_stdlib import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns a question that names the closest known word; "" if none is close."""
    import difflib  # for mistakes only

    found = difflib.get_close_matches(word.lower(), known, 1)
    return f"did you mean {found[0]!r}?" if found else ""


def suggest_arguments(function: F) -> F:
    """Makes a call with a misspelled keyword argument raise a TypeError that names the right one.

    Python 3.13 does this itself.
    """

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except TypeError as exc:
            _suggest(function, exc, args, named)
            raise

    return call  # type: ignore[return-value]  # the same signature


def suggest_awaited_arguments(function: F) -> F:
    """Does the same for an asynchronous function, which stays one."""
    begin = suggest_arguments(function)

    @wraps(function)
    async def call(*args: Any, **named: Any) -> Any:
        return await begin(*args, **named)

    return call  # type: ignore[return-value]  # the same signature


def _suggest(function: Callable[..., Any], exc: TypeError, args: tuple[object, ...], named: dict[str, object]) -> None:
    """Raises a better error for a call that has a misspelled argument."""
    assert exc.__traceback__ is not None
    sentence = str(exc)
    if function.__name__ == "__init__":  # users call the class, and may not know the one that has this method
        sentence = sentence.replace(f"{function.__qualname__}()", f"{type(args[0]).__name__}()")
    wrong = [name for name in named if f"unexpected keyword argument {name!r}" in sentence]
    if exc.__traceback__.tb_next is not None or not wrong:
        return  # it was raised inside the function
    code, question = function.__code__, ""
    if "did you mean" not in sentence.lower():
        question = did_you_mean(wrong[0], code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    if question or sentence != str(exc):
        raise TypeError(f"{sentence}; {question}" if question else sentence) from None
