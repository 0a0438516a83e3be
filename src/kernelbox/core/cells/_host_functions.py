"""Functions of the application that cells can call: how they are described to a kernel, and how they are called.

A kernel gets names, signatures and docstrings, and nothing of the functions themselves. A call comes back as an ask of
the server `host`, so policies and approvals see it like any other. Values are JSON both ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import keyword
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from kernelbox.base._errors import InvalidInput
from kernelbox.host.process._loop_thread import LoopThread
from kernelbox.wire._framing import MAX_FRAME
from kernelbox.wire._messages import Answer, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from kernelbox.wire._messages import Ask

    Tools = Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]]

# Characters of a docstring that a kernel gets.
_LONGEST_DOC = 20_000

# Plain functions of one process that run at a time.
_MOST_AT_ONCE = 32

# Bytes that an answer needs in its frame beside the value.
_HEADER_ROOM = 4096


class HostFunctions:
    """The functions that one cell may call, by name; of none, each call fails."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self._functions = functions
        self._signatures = {name: _signature(name, function) for name, function in functions.items()}
        self.described = [self._describe(name) for name in functions]

    async def answer(self, ask: Ask) -> Answer:
        """Makes a call on the event loop that runs: a plain function runs in a thread."""
        try:
            function, args, named = self._bind(ask)
            if inspect.iscoroutinefunction(function):
                value = await function(*args, **named)
            else:
                work = functools.partial(copy_context().run, _call, function, args, named)
                value, failure = await asyncio.wrap_future(_threads(os.getpid()).submit(work))
                if failure is not None:
                    return _failed(ask, failure)
                if inspect.isawaitable(value):
                    value = await value
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _failed(ask, exc)  # the function itself awaited something that was cancelled
        except (Exception, SystemExit) as exc:  # noqa: BLE001  # the application's function may raise anything: the cell gets it
            return _failed(ask, exc)
        return _returned(ask, value)

    def submit(self, ask: Ask) -> Future[Answer]:
        """Makes a call while the caller's thread waits for the kernel."""
        return _loop_thread().submit(self.answer(ask))

    def _bind(self, ask: Ask) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Returns the function of an ask, which a cell may have forged, and its arguments."""
        if ask.tool_name not in self._functions:
            raise _not_passed(ask)
        signature = self._signatures[ask.tool_name]
        if unknown := ask.tool_args.keys() - signature.parameters.keys():
            raise TypeError(f"{ask.tool_name}() got unexpected arguments: {', '.join(sorted(unknown))}")
        bound = inspect.BoundArguments(signature, {})
        for name, parameter in signature.parameters.items():
            if name in ask.tool_args:
                value = ask.tool_args[name]
                bound.arguments[name] = tuple(value) if parameter.kind is parameter.VAR_POSITIONAL else value
                if parameter.kind is parameter.VAR_KEYWORD and (twice := value.keys() & _keywords(signature)):
                    # They would replace arguments that a policy has seen.
                    raise TypeError(f"{ask.tool_name}() got arguments twice: {', '.join(sorted(twice))}")
        signature.bind(*bound.args, **bound.kwargs)
        return self._functions[ask.tool_name], bound.args, bound.kwargs

    def _describe(self, name: str) -> str:
        function, signature = self._functions[name], self._signatures[name]
        parameters = [
            [each.name, int(each.kind), _shown(each.default), _named(each.annotation)]
            for each in signature.parameters.values()
        ]
        return json.dumps(
            {
                "name": name,
                "doc": (inspect.getdoc(function) or "")[:_LONGEST_DOC],
                "async": inspect.iscoroutinefunction(function),
                "parameters": parameters,
                "returns": _named(signature.return_annotation),
            }
        )


def check_tools(tools: Tools | None) -> HostFunctions | None:
    """Returns the functions that cells may call, None for none; raises InvalidInput."""
    if tools is None or isinstance(tools, HostFunctions):
        return tools
    if isinstance(tools, Mapping):
        named = dict(tools)
    else:
        try:
            given = list(tools)
        except TypeError:
            raise InvalidInput("tools", tools, "use a list of functions, or a dict of them by name") from None
        named = {}
        for function in given:
            name = getattr(function, "__name__", type(function).__name__)
            if name in named:
                raise InvalidInput("tools", name, "two functions have this name: pass a dict of functions by name")
            named[name] = function
    for name, function in named.items():
        if not callable(function):
            raise InvalidInput("tools", function, "use functions")
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise InvalidInput("tools", name, "a cell could not call it by this name: pass a dict of functions by name")
    return HostFunctions(named) if named else None


def no_function(ask: Ask) -> Answer:
    """Returns the answer to a call of a function that was not passed to this cell."""
    return _failed(ask, _not_passed(ask))


def _not_passed(ask: Ask) -> LookupError:
    return LookupError(f"no function {ask.tool_name!r} was passed to this cell")


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as exc:
        raise InvalidInput("tools", name, f"its parameters cannot be read ({exc}); wrap it in a function") from exc


def _keywords(signature: inspect.Signature) -> set[str]:
    """Returns the parameters that can be passed by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name for name, parameter in signature.parameters.items() if parameter.kind in kinds}


def _call(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """Returns what a function returns, or what it raises: a future takes neither StopIteration nor SystemExit."""
    try:
        return function(*args, **named), None
    except BaseException as exc:  # noqa: BLE001  # as above
        return None, exc


def _shown(default: object) -> str | None:
    """Returns the default of a parameter as it is written in code, None for none."""
    if default is inspect.Parameter.empty:
        return None
    text = repr(default)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _named(annotation: object) -> str:
    """Returns an annotation as it is written in code, "" for none."""
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _returned(ask: Ask, value: object) -> Answer:
    try:
        payload = json.dumps({"value": value}, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        return _failed(ask, TypeError(f"what {ask.tool_name} returned is not JSON: {exc}"))
    if len(payload) > MAX_FRAME - _HEADER_ROOM:
        return _failed(ask, ValueError(f"{ask.tool_name} returned {len(payload):,} bytes, more than a kernel takes"))
    return Answer(ask.id, ask.ask, True, payload=payload)


def _failed(ask: Ask, exc: BaseException) -> Answer:
    words = type(exc).__name__
    with contextlib.suppress(Exception):  # its own __str__ may fail
        if said := f"{exc!s:.10000}":
            words = said if isinstance(exc, ToolError) else f"{words}: {said}"  # the cell says ToolError itself
    return Answer(ask.id, ask.ask, True, payload=json.dumps({"error": words}).encode())


@functools.cache
def _threads(pid: int) -> ThreadPoolExecutor:
    """Returns the threads of this process; a fork has its own."""
    return ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="kernelbox-host")


@functools.cache
def _loop_thread() -> LoopThread:
    return LoopThread("kernelbox-host")
