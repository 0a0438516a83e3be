"""Streaming: chunks as they are written, a consumer that is slow or leaves, cancellation."""

from __future__ import annotations

import asyncio
import gc
import resource
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.cells import eventually
from tests.support.executor import DEADLINE, collect, first_chunk, run, text

from kernelbox import CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor, ExecutionTimeout

pytestmark = pytest.mark.usefixtures("home")

# A cell that says that it runs, and notes how it ended.
ENDLESS = """
ended = ''
try:
    print('running', flush=True)
    while True: pass
except KeyboardInterrupt:
    ended = 'interrupted'
    raise
"""


def test_chunks_come_while_the_cell_runs(tmp_path: Path) -> None:
    """The cell goes on only once its first chunk has been seen."""
    sign = tmp_path / "sign"
    code = (
        f"import os, time\nprint('first')\nwhile not os.path.exists({str(sign)!r}): time.sleep(0.01)\nprint('second')"
    )

    async def scenario() -> list[str]:
        chunks = []
        async with CodeExecutor() as executor:
            async for item in executor.stream(code, chunks=True, timeout=DEADLINE):
                match item:
                    case CodeExecutionChunk():
                        chunks.append(item.text)
                        sign.touch()
                    case CodeExecutionResult():
                        assert item.text == "first\nsecond"
        return chunks

    assert run(scenario) == ["first\n", "second\n"]


def test_chunks_together_are_the_text_of_the_result() -> None:
    code = "print('a', end='')\ndisplay(1)\nprint('b', end='')\nimport sys\nprint('c', file=sys.stderr)\n'd'"

    async def scenario() -> tuple[str, str | None]:
        chunks, result = "", None
        async with CodeExecutor() as executor:
            async for item in executor.stream(code, chunks=True):
                if isinstance(item, CodeExecutionChunk):
                    chunks += item.text
                elif isinstance(item, CodeExecutionResult):
                    result = item.text
        return chunks, result

    chunks, result = run(scenario)
    assert chunks.rstrip() == result == "a\n1\nbc\n'd'"


def test_without_chunks_only_the_result_is_yielded() -> None:
    async def scenario() -> list[object]:
        async with CodeExecutor() as executor:
            return [type(item) async for item in executor.stream("print('a')\nprint('b')")]

    assert run(scenario) == [CodeExecutionResult]


def test_an_error_is_raised_after_the_chunks() -> None:
    async def scenario() -> list[CodeExecutionChunk]:
        chunks: list[CodeExecutionChunk] = []
        async with CodeExecutor() as executor:
            with pytest.raises(CodeExecutionError, match="ZeroDivisionError"):
                await collect(executor.stream("print('before')\n1/0", chunks=True), chunks)
        return chunks

    assert run(scenario) == [CodeExecutionChunk("before\n")]


def test_breaking_out_of_the_loop_interrupts_the_cell_and_frees_the_kernel() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            async for _ in executor.stream(ENDLESS, chunks=True):
                break
            return await text(executor, "ended")

    assert run(scenario) == "'interrupted'"


def test_leaving_a_stream_whose_cell_has_ended_already_frees_the_kernel_too() -> None:
    """The end often arrives together with the first chunk."""

    async def scenario() -> None:
        async with CodeExecutor() as executor:
            for _ in range(50):
                async with aclosing(executor.stream("print('x')", chunks=True)) as stream:
                    await first_chunk(stream)
                assert "idle" in repr(executor)

    run(scenario)


def test_closing_the_stream_returns_when_the_cell_has_stopped() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            async with aclosing(executor.stream(ENDLESS, chunks=True)) as stream:
                await first_chunk(stream)
            assert "idle" in repr(executor)
            return await text(executor, "ended")

    assert run(scenario) == "'interrupted'"


def test_an_exception_in_the_loops_body_interrupts_the_cell() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:

            async def fail() -> None:
                async for _ in executor.stream(ENDLESS, chunks=True):
                    raise LookupError

            with pytest.raises(LookupError):
                await fail()
            return await text(executor, "ended")

    assert run(scenario) == "'interrupted'"


def test_cancelling_the_task_interrupts_the_cell_and_frees_the_kernel() -> None:
    async def scenario() -> str | None:
        running = asyncio.Event()
        async with CodeExecutor() as executor:

            async def consume() -> None:
                async for _ in executor.stream(ENDLESS, chunks=True):
                    running.set()

            task = asyncio.create_task(consume())
            await running.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await text(executor, "ended")

    assert run(scenario) == "'interrupted'"


def test_a_task_cancelled_twice_leaves_the_cleaning_up_to_the_executor() -> None:
    stubborn = ENDLESS.replace("    raise\n", "    while True: pass\n")

    async def scenario() -> str | None:
        running = asyncio.Event()
        async with CodeExecutor() as executor:

            async def consume() -> None:
                async for _ in executor.stream(stubborn, chunks=True):
                    running.set()

            task = asyncio.create_task(consume())
            await running.wait()
            task.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await text(executor, "1 + 1")

    assert run(scenario) == "2"


def test_wait_for_around_execute_interrupts_the_cell() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(executor.execute(ENDLESS), 2)
            return await text(executor, "ended")

    assert run(scenario) == "'interrupted'"


def test_cancel_from_another_task_ends_execute_with_what_was_written() -> None:
    async def scenario() -> tuple[CodeExecutionResult, str | None]:
        async with CodeExecutor(name="cancelled") as executor, CodeExecutor(name="cancelled") as watcher:
            stream = executor.stream(ENDLESS, chunks=True)
            await first_chunk(stream)

            async def last() -> CodeExecutionResult:
                async for item in stream:
                    if isinstance(item, CodeExecutionResult):
                        return item
                raise AssertionError

            consumer = asyncio.create_task(last())
            await asyncio.sleep(0)
            await executor.cancel()
            return await consumer, await text(watcher, "ended")

    result, ended = run(scenario)
    assert (result.text, result.cancelled, result.ok, result.ending) == ("running", True, False, "interrupted")
    assert ended == "'interrupted'"


def test_execute_returns_nothing_when_it_is_cancelled_before_it_wrote() -> None:
    async def scenario() -> CodeExecutionResult:
        async with CodeExecutor() as executor:
            task = asyncio.create_task(executor.execute("import time; time.sleep(1000)"))
            while "running" not in repr(executor):  # noqa: ASYNC110  # it has no event for it, and needs none
                await asyncio.sleep(0)
            await executor.cancel()
            result = await task
            assert await text(executor, "1 + 1") == "2"
            return result

    result = run(scenario)
    assert (result.text, result.images, result.cancelled) == (None, [], True)


def test_cancel_with_nothing_running_does_nothing() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            await executor.cancel()
            return await text(executor, "1 + 1")

    assert run(scenario) == "2"


def test_a_consumer_that_holds_the_stream_and_never_returns_blocks_nobody_for_longer_than_the_timeout() -> None:
    async def scenario() -> str | None:
        async with CodeExecutor() as executor:
            held = executor.stream(ENDLESS, chunks=True, timeout=2)
            await first_chunk(held)
            ended = await text(executor, "ended")
            with pytest.raises(ExecutionTimeout):
                await anext(held)
            return ended

    assert run(scenario) == "'interrupted'"


def test_stopping_the_executor_ends_a_stream_that_somebody_still_holds() -> None:
    async def scenario() -> None:
        executor = CodeExecutor()
        await executor.start()
        held = executor.stream(ENDLESS, chunks=True)
        await first_chunk(held)
        await executor.stop()
        with pytest.raises(CodeExecutionError):
            await anext(held)

    run(scenario)


def test_a_slow_consumer_slows_the_cell_down_and_loses_nothing(tmp_path: Path) -> None:
    """What the cell has written is far more than can wait between it and the consumer, so it must stand still."""
    progress = tmp_path / "progress"
    line = "x" * 999
    code = (
        f"progress = open({str(progress)!r}, 'w', buffering=1)\n"
        f"for number in range(20_000):\n    print(f'{{number:05}}' + {line!r}[5:])\n    progress.write('.')"
    )

    async def scenario() -> tuple[int, str]:
        seen = ""
        async with CodeExecutor() as executor:
            stream = executor.stream(code, chunks=True, timeout=DEADLINE)
            seen += await first_chunk(stream)
            standing = await asyncio.to_thread(_wait_until_it_stands, progress)
            async for item in stream:
                if isinstance(item, CodeExecutionChunk):
                    seen += item.text
        return standing, seen

    standing, seen = run(scenario)
    assert standing < 5_000
    assert [row[:5] for row in seen.splitlines()] == [f"{number:05}" for number in range(20_000)]


def _wait_until_it_stands(progress: Path) -> int:
    """Waits until a file has not grown for a hundred looks at it, and returns its size."""
    sizes: list[int] = []

    def stands() -> bool:
        sizes.append(progress.stat().st_size)
        return len(sizes) > 100 and sizes[-1] == sizes[-100]

    eventually(stands)
    return sizes[-1]


def test_memory_stays_bounded_by_the_limit_however_much_is_streamed() -> None:
    code = "line = 'x' * 999\nfor _ in range(100_000): print(line)"

    async def scenario() -> tuple[int, float]:
        received = 0
        async with CodeExecutor(output_char_limit=2_000_000) as executor:
            await executor.execute("1")
            gc.collect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            async for item in executor.stream(code, chunks=True, timeout=DEADLINE):
                if isinstance(item, CodeExecutionChunk):
                    received += len(item.text)
            return received, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    received, growth = run(scenario)
    assert received == 100_000_000
    assert growth < 64


def test_a_timeout_in_a_stream_is_raised_and_the_chunks_before_it_were_seen() -> None:
    async def scenario() -> list[CodeExecutionChunk]:
        chunks: list[CodeExecutionChunk] = []
        async with CodeExecutor() as executor:
            with pytest.raises(TimeoutError):
                await collect(executor.stream(ENDLESS, chunks=True, timeout=2), chunks)
            assert await text(executor, "ended") == "'interrupted'"
        return chunks

    assert run(scenario) == [CodeExecutionChunk("running\n")]


def test_an_image_that_a_cell_shows_while_it_is_being_stopped_is_written(tmp_path: Path) -> None:
    code = (
        "import time\nfrom IPython.display import display\nprint('begun', flush=True)\n"
        "try: time.sleep(60)\n"
        "finally: display({'image/png': b'x', 'text/plain': 'shown'}, raw=True); open('shown', 'w')"
    )

    async def scenario() -> ExecutionTimeout:
        async with CodeExecutor(images_dir=tmp_path, working_dir=tmp_path) as executor:
            stream = executor.stream(code, timeout=2, chunks=True)
            await first_chunk(stream)
            # A slow consumer: the time is up while no task awaits the next chunk.
            await asyncio.to_thread(eventually, (tmp_path / "shown").exists)
            with pytest.raises(ExecutionTimeout) as caught:
                async for _ in stream:
                    pass
            return caught.value

    timeout = run(scenario)
    assert timeout.text is not None
    assert "shown" in timeout.text
    assert len(timeout.images) == 1
