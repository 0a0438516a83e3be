"""FastMCP: the sandbox of its code mode, in which a model calls the tools of a server from code."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

from kernelbox.api._async_kernel import AsyncKernel
from kernelbox.integrations._adapting import needs

with needs("fastmcp"):
    from fastmcp.exceptions import ToolError


class KernelboxSandboxProvider:
    """Runs each piece of code in a new kernel. The options are those of `AsyncKernel`; it is confined by default."""

    def __init__(self, *, sandbox: Any = True, timeout: float = 30, **options: Any) -> None:
        self._options = {"sandbox": sandbox, "timeout": timeout, **options}

    async def run(
        self,
        code: str,
        *,
        inputs: dict[str, Any] | None = None,
        external_functions: dict[str, Callable[..., Any]] | None = None,
    ) -> Any:
        """Returns what the code returns, if it is JSON, and its text otherwise."""
        tools = {name: _awaitable(function) for name, function in (external_functions or {}).items()}
        async with AsyncKernel(tools=tools or None, **self._options) as kernel:
            for name, value in (inputs or {}).items():
                await kernel.set(name, value)
            result = await kernel.execute(_as_function(code))
        if not result.ok:
            raise ToolError(str(result))
        return result.return_value if result.value is None else result.value


def _as_function(code: str) -> str:
    """Returns a cell whose last value is what the code returns: `return` and `await` stand at its top level."""
    try:
        body = ast.parse(code).body or [ast.Pass()]
    except SyntaxError as exc:
        raise ToolError(f"SyntaxError: {exc}") from exc
    (main,) = ast.parse("async def _main(): ...").body
    assert isinstance(main, ast.AsyncFunctionDef)
    main.body = body
    return f"{ast.unparse(main)}\nawait _main()"


def _awaitable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that the code awaits, as in FastMCP's other sandboxes."""
    if inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    async def call(*args: Any, **named: Any) -> Any:
        returned = function(*args, **named)
        return await returned if inspect.isawaitable(returned) else returned

    return call
