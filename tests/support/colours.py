"""Both colours of the kernel objects behind one set of blocking functions, so that one test runs in each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from kernelbox import AsyncKernel, Kernel


class Colour:
    """Calls methods of a `Kernel`, or of an `AsyncKernel` on a loop of its own, and returns what they return."""

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self._runner = asyncio.Runner() if asynchronous else None

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()

    def open(self, name: str | None = None, **options: Any) -> Any:
        """Returns an opened kernel object."""
        if not self.asynchronous:
            return Kernel(name, **options).start()
        return self.call(lambda: AsyncKernel(name, **options).start())

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a method; what it returns is awaited, and what it yields is a list."""
        if self._runner is None:
            returned = function(*args, **named)
            return list(returned) if inspect.isgenerator(returned) else returned
        return self._runner.run(_settle(function, args, named))


async def _settle(function: Callable[..., Any], args: Any, named: Any) -> Any:
    returned = function(*args, **named)
    if inspect.isasyncgen(returned):
        return [item async for item in returned]
    return await returned if inspect.isawaitable(returned) else returned
