"""Functions of the application, as cells see them: plain functions whose calls are asked of the host."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import HOST_SERVER, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbox.guest.serve._asks import PendingAsks
    from kernelbox.guest.shell._shell import ZMQInteractiveShell

keep_builtins(globals())


class FunctionsOfHost:
    """Puts functions into the namespace of cells. `%who`, `changed` and the list of variables do not show them."""

    def __init__(self, shell: ZMQInteractiveShell, asks: PendingAsks) -> None:
        self._shell = shell
        self._asks = asks
        self._made: dict[str, tuple[str, Callable[..., Any]]] = {}  # by description
        self.described: dict[str, dict[str, Any]] = {}

    def install(self, descriptions: list[str]) -> None:
        """Defines the functions that the next cell may call. They stay; the host decides which of them it answers."""
        for text in descriptions:
            if text not in self._made:
                described = json.loads(text)
                self.described[described["name"]] = described
                self._made[text] = described["name"], _make(self._asks, described)
            name, function = self._made[text]
            self._shell.user_ns[name] = self._shell.user_ns_hidden[name] = function


def _make(asks: PendingAsks, described: dict[str, Any]) -> Callable[..., Any]:
    name = described["name"]
    signature = inspect.Signature(
        [_parameter(*parameter) for parameter in described["parameters"]],
        return_annotation=described["returns"] or inspect.Signature.empty,
    )

    def call(*args: Any, **named: Any) -> Any:
        return _read(asks.ask(HOST_SERVER, name, _arguments(signature.bind(*args, **named))))

    async def call_async(*args: Any, **named: Any) -> Any:
        return _read(await asks.ask_async(HOST_SERVER, name, _arguments(signature.bind(*args, **named))))

    function: Any = call_async if described["async"] else call
    function.__name__ = function.__qualname__ = name
    function.__doc__ = described["doc"]
    function.__module__ = HOST_SERVER
    function.__signature__ = signature
    return function  # type: ignore[no-any-return]  # a function


def _parameter(name: str, kind: int, default: str | None, annotation: str) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect._ParameterKind(kind),
        default=inspect.Parameter.empty if default is None else _Shown(default),
        annotation=annotation or inspect.Parameter.empty,
    )


class _Shown:
    """The default of a parameter, as the host shows it. The host fills in the value."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _arguments(bound: inspect.BoundArguments) -> dict[str, Any]:
    return {name: list(value) if type(value) is tuple else value for name, value in bound.arguments.items()}


def _read(payload: bytes) -> Any:
    answer = json.loads(payload)
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["value"]
