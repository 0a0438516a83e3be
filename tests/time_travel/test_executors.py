"""Time travel of a CodeExecutor: its methods, while cells run and wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.executor import run
from tests.support.store import run_python

from kernelbox import CodeExecutionError, CodeExecutionResult, CodeExecutor, ExecutorStopped, destroy, list_kernels

SLEEP = "print('in', flush=True); import time; time.sleep(1000)"


def test_a_program_that_copies_no_kernel_does_not_load_what_copies_them(home: Path) -> None:
    code = (
        "import asyncio, kernelbox, sys\n"
        "async def main():\n"
        "    async with kernelbox.CodeExecutor() as executor:\n"
        "        await executor.execute('1 + 1')\n"
        "asyncio.run(main())\n"
        "with kernelbox.Kernel() as kernel:\n"
        "    kernel.execute('1 + 1')\n"
        "kernelbox.list_kernels()\n"
        "print([name for name in sys.modules if name.endswith(('_time_travel', '_keeper_request', '_copies'))])"
    )
    assert run_python(code).stdout.strip() == "[]"


@pytest.mark.parametrize("name", [None, "named"])
def test_an_executor_goes_back_to_a_checkpoint_and_drops_it(home: Path, name: str | None) -> None:
    async def go() -> None:
        async with CodeExecutor(name=name) as executor:
            await executor.execute("x = 1")
            made = await executor.checkpoint("one")
            await executor.execute("x = 2")
            await executor.rollback("one")
            assert (await executor.execute("print(x)")).text == "1"
            assert [each.number for each in await executor.checkpoints()] == [made.number]
            assert await executor.drop(made)
            assert not await executor.drop("one")

    run(go)


def test_a_running_cell_fails_with_the_reason_and_a_waiting_one_runs_after_the_rollback(home: Path) -> None:
    async def go() -> None:
        async with CodeExecutor() as executor:
            await executor.execute("x = 1")
            await executor.checkpoint()
            begun = asyncio.Event()
            running = asyncio.ensure_future(run_and_tell(executor, begun))
            await begun.wait()
            waiting = asyncio.ensure_future(executor.execute("print(x)"))
            await executor.rollback()
            with pytest.raises(CodeExecutionError, match="rolled back to checkpoint 1"):
                await running
            assert (await waiting).text == "1"

    run(go)


def test_a_private_kernel_comes_back_from_the_dead(home: Path) -> None:
    async def go() -> None:
        async with CodeExecutor() as executor:
            await executor.execute("x = 1")
            await executor.checkpoint()
            with pytest.raises(CodeExecutionError, match="restored from checkpoint 1") as caught:
                await executor.execute("x = 2; import os; os._exit(3)")
            assert "reset()" not in str(caught.value)
            assert (await executor.execute("print(x)")).text == "1"

    run(go)


def test_a_cancelled_cell_that_nothing_stops_says_what_its_kernel_was_restored_from(home: Path) -> None:
    async def go() -> None:
        async with CodeExecutor() as executor:
            await executor.execute("x = 1")
            await executor.checkpoint()
            begun, results = asyncio.Event(), list[object]()
            endless = "print('in', flush=True); sum(range(10**13))"  # C code, which no interrupt reaches
            running = asyncio.ensure_future(run_and_tell(executor, begun, endless, results))
            await begun.wait()
            await executor.cancel()
            await running
            result = results[-1]
            assert isinstance(result, CodeExecutionResult)
            assert (result.cancelled, result.state, result.ending) == (True, "rolled back", "rolled back")
            assert (result.restored_from, result.lost_executions) == (1, [2])
            assert (await executor.execute("print(x)")).text == "1"

    run(go)


@pytest.mark.parametrize("name", [None, "named"])
def test_branches_have_executors_of_their_own_and_one_takes_the_originals_place(home: Path, name: str | None) -> None:
    async def go() -> None:
        async with CodeExecutor(name=name) as executor:
            await executor.execute("x = 1")
            single = await executor.branch("single")
            assert (single.name, executor.name) == ("single", name)
            good, bad = await executor.branch(names=["good", "bad"])
            async with good, bad:
                await good.execute("x = 'good'")
                await bad.execute("x = 'bad'")
                assert (await executor.execute("print(x)")).text == "1"
                await good.promote()
                with pytest.raises(ExecutorStopped):
                    await good.execute("x")
            assert (await executor.execute("print(x)")).text == "good"
        for left in ("single", "bad", "named"):
            destroy(left)
        assert list_kernels() == []

    run(go)


def test_a_cancelled_branch_leaves_no_kernel(home: Path) -> None:
    async def go() -> None:
        async with CodeExecutor() as executor:
            begun = asyncio.Event()
            running = asyncio.ensure_future(run_and_tell(executor, begun))
            await begun.wait()
            branching = asyncio.ensure_future(executor.branch("never"))
            await asyncio.sleep(0)
            branching.cancel()
            await executor.cancel()
            await running
            assert [record.name for record in list_kernels() if record.name == "never"] == []

    run(go)


async def run_and_tell(
    executor: CodeExecutor, begun: asyncio.Event, code: str = SLEEP, told: list[object] | None = None
) -> None:
    async for event in executor.stream(code, chunks=True):
        begun.set()
        if told is not None:
            told.append(event)
