"""The asynchronous API on Jupyter kernels: an event loop learns in time what only the clock tells."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.cells import DEADLINE
from tests.support.executor import first_chunk
from tests.support.executor import run as run_scenario

from kernelbox import CodeExecutionError, CodeExecutor, KernelRecord, destroy, get_or_create


def test_a_lost_idle_ends_the_cell_for_a_client_on_an_event_loop() -> None:
    record = get_or_create("forgetful, async", kernel_type="odd-forgetful")

    async def scenario() -> list[str | None]:
        async with CodeExecutor(name=record.name) as executor:
            return [(await executor.execute(f"say {word}", timeout=DEADLINE)).text for word in ("one", "two")]

    assert run_scenario(scenario) == ["one", "two"]
    destroy(record)


def test_a_lost_reply_ends_the_cell_for_a_client_on_an_event_loop() -> None:
    record = get_or_create("silent, async", kernel_type="odd-silent")

    async def scenario() -> None:
        async with CodeExecutor(name=record.name) as executor:
            with pytest.raises(CodeExecutionError, match="the kernel stopped the cell"):
                await executor.execute("say hello", timeout=DEADLINE)

    run_scenario(scenario)
    destroy(record)


def test_a_cell_that_calls_exit_ends_the_kernel_for_a_client_on_an_event_loop(ipython: KernelRecord) -> None:
    async def scenario() -> None:
        async with CodeExecutor(name=ipython.name) as executor:
            with pytest.raises(CodeExecutionError, match=r"the cell called exit\(\)"):
                await executor.execute("exit()", timeout=DEADLINE)

    run_scenario(scenario)


def test_each_of_several_clients_on_an_event_loop_gets_its_own_output(odd: KernelRecord) -> None:
    async def one(word: str) -> list[str | None]:
        async with CodeExecutor(name=odd.name) as executor:
            return [(await executor.execute(f"say {word}", timeout=DEADLINE)).text for _ in range(10)]

    async def scenario() -> list[list[str | None]]:
        return await asyncio.gather(*(one(word) for word in ("a", "b", "c")))

    assert run_scenario(scenario) == [["a"] * 10, ["b"] * 10, ["c"] * 10]


def test_a_cell_that_waits_behind_another_is_withdrawn_when_its_time_is_up(odd: KernelRecord) -> None:
    async def scenario() -> None:
        async with CodeExecutor(name=odd.name) as first, CodeExecutor(name=odd.name) as second:
            waiting = first.stream("say in\nwait", chunks=True)
            await first_chunk(waiting)
            with pytest.raises(TimeoutError, match="never ran"):
                await second.execute("say intruder", timeout=0.2)
            await waiting.aclose()
            assert (await second.execute("say mine", timeout=DEADLINE)).text == "mine"

    run_scenario(scenario)
