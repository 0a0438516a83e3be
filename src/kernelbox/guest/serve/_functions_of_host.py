"""Functions of the application, as cells see them: plain functions whose calls are asked of the host."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from kernelbox.guest._stdlib import os
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._messages import HOST_SERVER, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

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
        if descriptions and not self._made:
            sys.meta_path.append(_Discovery())
        for text in descriptions:
            if text not in self._made:
                described = json.loads(text)
                self.described[described["name"]] = described
                self._made[text] = described["name"], _make(self._asks, described)
            name, function = self._made[text]
            self._shell.user_ns[name] = self._shell.user_ns_hidden[name] = function


class _Discovery:
    """Finds `mcptools`, in which a cell searches for functions, if no package of this name was generated."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name == _TOOLS else None  # type: ignore[arg-type]  # no base

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves it to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = [os.path.abspath(_TOOLS)]  # where packages of servers are generated, perhaps later
        importlib.import_module("kernelbox.guest.discovery").install(module.__name__)  # as a generated package does


_TOOLS = "mcptools"


def _make(asks: PendingAsks, described: dict[str, Any]) -> Callable[..., Any]:
    name = described["name"]
    signature = inspect.Signature(
        [_parameter(*parameter) for parameter in described["parameters"]],
        return_annotation=described["returns"] or inspect.Signature.empty,
    )

    def call(*args: Any, **named: Any) -> Any:
        return _read(asks.ask(HOST_SERVER, name, _arguments(name, signature, args, named)))

    async def call_async(*args: Any, **named: Any) -> Any:
        return _read(await asks.ask_async(HOST_SERVER, name, _arguments(name, signature, args, named)))

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


def _arguments(name: str, signature: inspect.Signature, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    try:
        bound = signature.bind(*args, **named)
    except TypeError as exc:
        raise TypeError(f"{name}() {exc}") from None  # without frames of inspect
    return {name: list(value) if type(value) is tuple else value for name, value in bound.arguments.items()}


def _read(payload: bytes) -> Any:
    answer = json.loads(payload)
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["value"]
