"""The executor: start, executing, the first chunk, and what it costs to say what changed.

ipybox's own figures, measured with ipybox 0.9.2 and `mcp<2` (it does not run with a newer one): 3 to 4 s from
`CodeExecutor()` to the first result, 50 ms for each `execute`, 0.9 s for `reset`. To repeat them:

    uv run --no-project --with "ipybox==0.9.2" --with "mcp<2" python benchmarks/ipybox_figures.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing

import kernelbox
from benchmarks._measure import Row, percentile, scaled, show
from kernelbox import CodeExecutionChunk, CodeExecutor

_THEIRS = {"start": 4.0, "execute": 0.050, "reset": 0.9}


def rows() -> Iterator[Row]:
    yield from asyncio.run(_rows())


async def _rows() -> list[Row]:
    async with CodeExecutor() as executor, CodeExecutor(report_changes=False) as silent:
        await executor.execute("1+1")
        return [
            await _start(),
            *await _execute(executor),
            await _changes(executor, silent),
            await _first_chunk(executor),
            await _reset(executor),
        ]


async def _start() -> Row:
    async def first_result() -> None:
        executor = CodeExecutor()
        await executor.start()
        await executor.execute("1+1")
        stops.append(executor)

    stops: list[CodeExecutor] = []
    ours = await _times(first_result, 40)
    for executor in stops:
        await executor.stop()
    return _against_ipybox("`CodeExecutor` start to first result, template warm", ours, "start")


async def _execute(executor: CodeExecutor) -> list[Row]:
    kernel = kernelbox.get_or_create("bench-sync")

    async def sync() -> None:
        kernelbox.execute(kernel, "1+1")

    async def ours() -> None:
        await executor.execute("1+1")

    taken: dict[str, list[float]] = {"sync": [], "async": []}
    for _ in range(scaled(40)):
        taken["sync"] += await _times(sync, 15)
        taken["async"] += await _times(ours, 15)
    kernelbox.destroy(kernel)
    sync_times, async_times = sorted(taken["sync"]), sorted(taken["async"])
    ratio = percentile(async_times, 50) / percentile(sync_times, 50)
    what = '`executor.execute("1+1")`'
    return [
        Row(what, show(async_times), f"sync API {show(sync_times)}", f"{ratio:.2f} ×", "≤ 1.5 ×", ratio <= 1.5),
        _against_ipybox(what, async_times, "execute"),
    ]


async def _changes(executor: CodeExecutor, silent: CodeExecutor) -> Row:
    async def reporting() -> None:
        await executor.execute("pass")

    async def not_reporting() -> None:
        await silent.execute("pass")

    taken: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(scaled(60)):
        taken["without"] += await _times(not_reporting, 10)
        taken["with"] += await _times(reporting, 10)
    with_, without = sorted(taken["with"]), sorted(taken["without"])
    ratio = percentile(with_, 50) / percentile(without, 50)
    return Row(
        "an empty cell with `changed` reported",
        show(with_),
        f"without {show(without)}",
        f"{ratio:.2f} ×",
        "≤ 1.05 ×",
        ratio <= 1.05,
    )


async def _first_chunk(executor: CodeExecutor) -> Row:
    async def first() -> None:
        async with aclosing(executor.stream("print('x', flush=True)", chunks=True)) as stream:
            while not isinstance(await anext(stream), CodeExecutionChunk):
                continue

    return Row("call of `stream` to first chunk", show(await _times(first, scaled(200))))


async def _reset(executor: CodeExecutor) -> Row:
    return _against_ipybox("`reset()`", await _times(executor.reset, scaled(30)), "reset")


def _against_ipybox(what: str, ours: list[float], figure: str) -> Row:
    theirs = _THEIRS[figure]
    ratio = theirs / percentile(ours, 50)
    return Row(what, show(ours), f"ipybox 0.9.2, its figure: {theirs * 1000:.0f} ms", f"{ratio:.0f} × faster")


async def _times(action: Callable[[], Awaitable[object]], count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await action()
        taken.append(time.perf_counter() - began)
    return sorted(taken)
