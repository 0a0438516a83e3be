"""Whatever a test waits for has a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Seconds. Far beyond what anything here takes, so that reaching it means a hang and not a busy machine.
DEADLINE = 100.0

# Seconds. A timeout within which a cell begins and prints, on a machine that has other work too.
BEGUN = 2.0


def run(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a scenario on a new event loop."""

    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE):
            return await scenario()

    return asyncio.run(bounded())
