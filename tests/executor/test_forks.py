"""A program that forks while it has a CodeExecutor: executor, kernel and event loop stay with the parent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import WAITING_CELL, run_program

pytestmark = pytest.mark.usefixtures("home")

SCENARIO = f"""{WAITING_CELL}
import asyncio, gc, os
from kernelbox import CodeExecutor, ExecutorStopped, InheritedStream

async def child(executor, items):
    CHILD

async def main():
    executor = CodeExecutor(name=NAME)
    await executor.start()
    items = executor.stream(code, timeout=60, chunks=True)
    first = await anext(items)
    pid = os.fork()
    if pid == 0:
        try:
            await child(executor, items)
        except BaseException as exc:
            print("child:", repr(exc), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert status[1] == 0, status
    open(go, "w").close()
    *_, result = [item async for item in items]
    again = await executor.execute("print(x)")
    print(first.text.strip(), result.text.split(), again.text)
    await executor.stop()

asyncio.run(main())
"""


def fork_with_an_executor(child: str, directory: Path, *, name: str | None) -> str:
    script = SCENARIO.replace("CHILD", child.replace("\n", "\n    ")).replace("NAME", repr(name))
    return run_program(script, directory)


REFUSES = "try:\n    await {}\nexcept ExecutorStopped:\n    return\nraise AssertionError('it was not refused')"


@pytest.mark.parametrize("name", [None, "shared"])
@pytest.mark.parametrize(
    "child",
    [
        pytest.param("await executor.stop()", id="stops it"),
        pytest.param("await executor.__aexit__(None, None, None)", id="leaves its block"),
        pytest.param("await executor.cancel()", id="cancels its cell"),
        pytest.param(REFUSES.format("executor.reset()"), id="resets it"),
        pytest.param(REFUSES.format("executor.execute('1')"), id="runs a cell"),
        pytest.param(REFUSES.format("executor.variables()"), id="lists the variables"),
        pytest.param("await items.aclose()", id="leaves the stream"),
        pytest.param("items = executor = None\ngc.collect()", id="forgets it"),
        pytest.param(
            "try:\n    await anext(items)\nexcept InheritedStream:\n    return\n"
            "raise AssertionError('read the stream of its parent')",
            id="reads the stream",
        ),
    ],
)
def test_what_a_fork_does_to_an_executor_leaves_the_parents_cell_alone(
    child: str, name: str | None, tmp_path: Path
) -> None:
    assert fork_with_an_executor(child, tmp_path, name=name) == "begun ['begun', 'ended'] 42\n"


WORKER = """
import asyncio, multiprocessing
from kernelbox import CodeExecutor

shared = CodeExecutor()

def work(n):
    async def use():
        await shared.stop()  # the parent's, which goes on
        async with shared:
            await shared.execute(f"y = {n}")
            return (await shared.execute("'x' in globals(), y")).text
    return asyncio.run(use())

async def main():
    async with shared:
        await shared.execute("x = 42")
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(*await asyncio.to_thread(pool.map, work, [1, 2]))
        print((await shared.execute("x")).text)

asyncio.run(main())
"""


def test_a_worker_starts_an_inherited_executor_anew_with_a_kernel_of_its_own() -> None:
    assert run_program(WORKER) == "(False, 1) (False, 2)\n42\n"
