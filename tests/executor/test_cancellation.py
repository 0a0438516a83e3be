"""Cancelling what an executor does, at every wait that it has: no kernel, cell or lock is left behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import eventually
from tests.support.executor import run, text

import kernelbox
from kernelbox import CodeExecutionError, CodeExecutor

pytestmark = pytest.mark.usefixtures("home")

Operation = Callable[[CodeExecutor], Coroutine[Any, Any, object]]


class CancelledAt:
    """Awaiting it awaits a coroutine, and cancels the task when that waits for the nth time."""

    def __init__(self, awaited: Coroutine[Any, Any, object], wait: int) -> None:
        self.reached = False
        self._coroutine = awaited
        self._wait = wait

    def __await__(self) -> Generator[Any, Any, object]:
        step: Callable[[], Any] = partial(self._coroutine.send, None)
        for wait in itertools.count():
            try:
                future = step()
            except StopIteration as stop:
                return stop.value
            if wait == self._wait:
                task = asyncio.current_task()
                assert task is not None
                self.reached = task.cancel()
            try:
                yield future
                step = partial(self._coroutine.send, None)
            except BaseException as exc:  # noqa: BLE001  # the coroutine decides
                step = partial(self._coroutine.throw, exc)
        raise AssertionError


async def cancel_at(wait: int, operation: Coroutine[Any, Any, object]) -> bool:
    """Runs an operation in a task that is cancelled at its nth wait; returns whether there was one."""
    cancelled = CancelledAt(operation, wait)

    async def work() -> None:
        await cancelled

    await asyncio.wait([asyncio.create_task(work())])
    return cancelled.reached


def at_every_wait(scenario: Callable[[int], Coroutine[Any, Any, bool]]) -> None:
    """Runs a scenario, which returns whether it was cancelled, on a loop of its own for each wait there is."""
    waits = 0
    while run(partial(scenario, waits)):
        waits += 1
        assert kernelbox.list_kernels() == []
    assert waits > 0


async def no_kernels() -> None:
    await asyncio.to_thread(eventually, lambda: kernelbox.list_kernels() == [])


async def stream_and_leave(executor: CodeExecutor) -> None:
    items = executor.stream("print('begun', flush=True)\nimport time; time.sleep(1000)", chunks=True)
    async for _ in items:
        break
    await items.aclose()


async def plot(executor: CodeExecutor) -> None:
    await executor.execute("from IPython.display import Image, display\ndisplay(Image(b'x', format='png'))\nprint('x')")


OPERATIONS: dict[str, Operation] = {
    "execute": lambda executor: executor.execute("print('x', flush=True)\nsum(range(10**6))"),
    "stream": stream_and_leave,
    "plot": plot,
    "variables": lambda executor: executor.variables(),
    "reset": lambda executor: executor.reset(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_executor_goes_on_whenever_a_call_is_cancelled(name: str, tmp_path: Path) -> None:
    async def scenario(wait: int) -> bool:
        async with CodeExecutor(images_dir=tmp_path) as executor:
            reached = await cancel_at(wait, OPERATIONS[name](executor))
            assert await text(executor, "1 + 1") == "2"
        return reached

    at_every_wait(scenario)


def test_a_start_that_is_cancelled_leaves_no_kernel_and_can_be_repeated() -> None:
    async def scenario(wait: int) -> bool:
        executor = CodeExecutor()
        reached = await cancel_at(wait, executor.start())
        if reached:
            await no_kernels()
            await executor.start()
        await executor.stop()
        return reached

    at_every_wait(scenario)


async def nothing(executor: CodeExecutor) -> None:
    return


async def run_a_cell(executor: CodeExecutor) -> None:
    items = executor.stream("print('begun', flush=True)\nwhile True: pass", chunks=True)
    await anext(items)
    executor.left = items  # type: ignore[attr-defined]  # keeps it open


@pytest.mark.parametrize("before", [nothing, run_a_cell])
def test_a_stop_that_is_cancelled_ends_the_kernel_all_the_same(
    before: Callable[[CodeExecutor], Awaitable[None]],
) -> None:
    async def scenario(wait: int) -> bool:
        executor = CodeExecutor()
        await executor.start()
        await before(executor)
        reached = await cancel_at(wait, executor.stop())
        await no_kernels()
        return reached

    at_every_wait(scenario)


def test_a_stop_that_is_cancelled_while_it_waits_for_a_reset_ends_both_kernels() -> None:
    async def scenario(wait: int) -> bool:
        executor = CodeExecutor()
        await executor.start()
        resetting = asyncio.create_task(executor.reset())
        await asyncio.sleep(0)
        reached = await cancel_at(wait, executor.stop())
        await resetting
        await no_kernels()
        return reached

    at_every_wait(scenario)


def test_a_loop_that_ends_in_the_middle_of_a_stop_leaves_no_kernel() -> None:
    for steps in range(2, 6):  # from when the stop is there and waits

        async def scenario(steps: int = steps) -> None:
            executor = CodeExecutor()
            await executor.start()
            tasks = [asyncio.create_task(executor.reset()), asyncio.create_task(executor.stop())]
            for _ in range(steps):
                await asyncio.sleep(0)
            assert len(tasks) == 2  # and the loop cancels them

        asyncio.run(scenario())
        run(no_kernels)


def test_a_loop_that_ends_when_a_cell_is_being_cancelled_does_not_wait_for_it_for_ever() -> None:
    executor = CodeExecutor()

    async def scenario() -> None:
        await executor.start()
        await run_a_cell(executor)

        async def cancel() -> None:
            executor.cancel()  # in the last step of the loop: the task that ends the cell does not begin

        task = asyncio.create_task(cancel())
        assert not task.done()

    asyncio.run(scenario())


def test_cells_that_wait_get_their_turn_when_the_one_before_is_cancelled() -> None:
    async def scenario(wait: int) -> bool:
        async with CodeExecutor() as executor:
            reached = asyncio.create_task(cancel_at(wait, executor.execute("x = 1")))
            others = [asyncio.create_task(text(executor, f"{n} + 1")) for n in range(3)]
            assert await asyncio.gather(*others) == ["1", "2", "3"]
            return await reached

    at_every_wait(scenario)


def test_a_cell_that_runs_when_its_kernel_is_replaced_fails_and_the_reset_can_be_cancelled() -> None:
    async def scenario(wait: int) -> bool:
        async with CodeExecutor() as executor:
            items = executor.stream("print('begun', flush=True)\nwhile True: pass", chunks=True)
            await anext(items)
            reached = await cancel_at(wait, executor.reset())
            if not reached:
                with pytest.raises(CodeExecutionError):
                    await anext(items)
            await items.aclose()
            assert await text(executor, "1 + 1") == "2"
        return reached

    at_every_wait(scenario)
