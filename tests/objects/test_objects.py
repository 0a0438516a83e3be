"""What only one colour of the kernel objects has: blocking on a loop, cancellation of tasks, pools, `kernelbox.aio`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.support.bounded import DEADLINE, run
from tests.support.cells import eventually

import kernelbox
from kernelbox import AsyncKernel, AsyncPool, InvalidInput, Kernel, Pool, get_or_create, list_kernels


def test_get_or_create_returns_a_kernel_object(home: Path) -> None:
    kernel = get_or_create("an-object")
    assert isinstance(kernel, Kernel)
    assert kernel.execute("6 * 7").return_value == "42"
    with kernel:
        pass
    assert [record.name for record in list_kernels()] == ["an-object"]


def test_a_with_block_ends_a_private_kernel(home: Path) -> None:
    with Kernel() as kernel:
        assert kernel.execute("1 + 1").return_value == "2"
        assert len(list_kernels()) == 1
    assert list_kernels() == []


def test_a_private_kernel_ends_with_its_process(own_home: Path) -> None:
    program = "from kernelbox import Kernel; Kernel().execute('1')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE)
    eventually(lambda: list_kernels() == [])


def test_cancelling_a_task_interrupts_its_cell_and_keeps_the_variables(home: Path) -> None:
    async def main() -> None:
        async with AsyncKernel() as kernel:
            begun, items = asyncio.Event(), kernel.stream("x = 1\nprint('on')\nwhile True: pass", timeout=600)

            async def read() -> None:
                async for _ in items:
                    begun.set()

            task = asyncio.create_task(read())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await kernel.execute("x")).return_value == "1"

    run(main)


def test_cells_of_many_tasks_queue_in_one_kernel(home: Path) -> None:
    async def main() -> None:
        async with AsyncKernel() as kernel:
            await kernel.execute("n = 0")
            await asyncio.gather(*(kernel.execute("n += 1") for _ in range(20)))
            assert (await kernel.execute("n")).return_value == "20"

    run(main)


def test_a_kernel_is_opened_by_its_first_cell(home: Path) -> None:
    async def main() -> None:
        kernel = AsyncKernel("lazy")
        assert list_kernels() == []
        assert (await kernel.execute("1")).ok
        assert [record.name for record in list_kernels()] == ["lazy"]

    run(main)


def test_a_start_that_is_cancelled_leaves_no_kernel(home: Path) -> None:
    async def main() -> None:
        task = asyncio.create_task(AsyncKernel().start())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)  # the loop ends after its threads
    assert list_kernels() == []


def test_a_stop_waits_for_the_start_that_it_undoes(home: Path) -> None:
    async def main() -> None:
        kernel = AsyncKernel()
        await asyncio.gather(kernel.start(), kernel.stop())
        assert list_kernels() == []

    run(main)


def test_a_kernel_that_was_being_opened_for_a_cancelled_cell_ends_with_its_object(home: Path) -> None:
    async def main() -> None:
        kernel = AsyncKernel()
        task = asyncio.create_task(kernel.execute("1"))
        await asyncio.sleep(0)
        task.cancel()
        await kernel.stop()

    run(main)
    assert list_kernels() == []


def test_an_asynchronous_approve_is_awaited(home: Path) -> None:
    async def main() -> None:
        async def approve(request: kernelbox.ApprovalRequest) -> bool:
            await asyncio.sleep(0)
            return bool(request.tool_args["cmd"] == "echo yes")

        async with AsyncKernel(approve=approve) as kernel:
            assert (await kernel.execute("!echo yes")).output.strip() == "yes"
            assert not (await kernel.execute("!echo no")).ok

    run(main)


def test_the_function_of_a_kernel_answers_on_an_event_loop_as_it_does_without_one(home: Path) -> None:
    threads = []

    def approve(request: kernelbox.SyncApprovalRequest) -> None:
        threads.append(threading.current_thread())
        request.accept(remember="execution")

    async def main(kernel: Kernel) -> None:
        asked = AsyncKernel.of(kernel)
        assert (await asked.execute("for _ in range(2):\n    !echo again")).output.split() == ["again", "again"]

    with Kernel(approve=approve) as kernel:
        run(lambda: main(kernel))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()  # the function may block, and the loop goes on


def test_requests_are_yielded_where_the_caller_wants_to_answer_them(home: Path) -> None:
    async def main() -> None:
        async with AsyncKernel() as kernel:
            asked = []
            async for item in kernel.stream("!echo yielded", approve=True):
                if isinstance(item, kernelbox.ApprovalRequest):
                    asked.append(item.tool_args["cmd"])
                    await item.accept()
            assert asked == ["echo yielded"]

    run(main)


def test_a_blocking_call_on_an_event_loop_warns_once_and_names_the_other_class(home: Path) -> None:
    program = (
        "import asyncio, warnings\n"
        "from kernelbox import Kernel, execute\n"
        "async def main():\n"
        "    with warnings.catch_warnings(record=True) as caught:\n"
        "        warnings.simplefilter('always')\n"
        "        with Kernel() as kernel:\n"
        "            kernel.execute('1'); execute(kernel, '1'); list(kernel.stream('1'))\n"
        "    print(*[w.message for w in caught], sep='\\n')\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=DEADLINE)
    [line] = ran.stdout.splitlines()
    assert "blocks the event loop" in line
    assert "AsyncKernel" in line


def test_a_pool_runs_a_batch_in_order_and_ends_its_kernels(home: Path) -> None:
    with Pool(3) as pool:
        results = list(pool.map([f"{number} ** 2" for number in range(10)]))
        assert [result.return_value for result in results] == [str(number**2) for number in range(10)]
        assert 1 <= len(list_kernels()) <= 3
    assert list_kernels() == []


def test_a_cell_that_kills_its_kernel_leaves_the_rest_of_the_batch_alone(home: Path) -> None:
    with Pool(1) as pool:
        died, fine = pool.map(["import os; os._exit(1)", "'fine'"])
    assert (died.ending, fine.return_value) == ("died", "'fine'")


def test_a_pool_on_an_event_loop_does_the_same(home: Path) -> None:
    async def main() -> None:
        async with AsyncPool(2) as pool:
            values = [result.return_value async for result in pool.map([f"{number} + 1" for number in range(5)])]
        assert values == ["1", "2", "3", "4", "5"]
        assert list_kernels() == []

    run(main)


def test_leaving_a_batch_interrupts_its_cells(home: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    cells = [
        f"import os\nwhile not os.path.exists({str(begun)!r}): pass",
        f"open({str(begun)!r}, 'w').close()\nwhile True: pass",
    ]
    with Pool(2) as pool:
        for _ in pool.map(cells, timeout=600):
            break
        assert [result.return_value for result in pool.map(["1", "2"])] == ["1", "2"]


def test_a_pool_can_be_used_again_after_it_was_closed(home: Path) -> None:
    with Pool(1) as pool:
        assert next(pool.map(["1"])).ok
    assert next(pool.map(["1"])).ok
    pool.close()

    async def main() -> None:
        async with AsyncPool(1) as pool:
            assert (await anext(pool.map(["1"]))).ok
        assert (await anext(pool.map(["1"]))).ok
        await pool.close()

    run(main)
    assert list_kernels() == []


def test_the_kernels_of_a_pool_have_no_name_of_their_own() -> None:
    for kind in (Pool, AsyncPool):
        with pytest.raises(InvalidInput, match="name"):
            kind(2, name="shared")


def test_a_pool_rejects_options_that_its_kernels_cannot_use_before_it_opens_one() -> None:
    for kind in (Pool, AsyncPool):
        with pytest.raises(TypeError, match=r"'sandbx'[;.] [Dd]id you mean 'sandbox'\?"):
            kind(2, sandbx=True)
        with pytest.raises(InvalidInput, match="timeout"):
            kind(2, timeout=-1)


def test_an_answer_to_a_job_can_be_remembered(home: Path) -> None:
    asked = []

    def approve(request: kernelbox.SyncApprovalRequest) -> None:
        asked.append(request.tool_args["cmd"])
        request.accept(remember="execution")

    with Kernel(approve=approve) as kernel:
        assert kernel.submit("for _ in range(3):\n    !echo again").result().ok
    assert asked == ["echo again"]


def test_waiting_for_a_job_in_vain_leaves_no_task_behind(home: Path) -> None:
    from kernelbox.api._job import _thread

    async def count() -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    with Kernel() as kernel:
        job = kernel.submit("while True: pass", timeout=600)
        _wait_in_vain(job)
        before = _thread.submit(count()).result()
        for _ in range(10):
            _wait_in_vain(job)
        assert _thread.submit(count()).result() <= before
        job.cancel()


def _wait_in_vain(job: kernelbox.Job) -> None:
    with pytest.raises(TimeoutError):
        job.result(timeout=0)


@pytest.mark.parametrize("size", [0, -1, "two", True])
def test_a_pool_without_kernels_is_refused(size: object) -> None:
    for kind in (Pool, AsyncPool):
        with pytest.raises(InvalidInput, match="size"):
            kind(size)  # type: ignore[arg-type]  # what is tested


def test_aio_has_the_same_objects_under_the_same_names() -> None:
    from kernelbox import aio

    assert (aio.Kernel, aio.Pool, aio.Job) == (AsyncKernel, AsyncPool, kernelbox.AsyncJob)
