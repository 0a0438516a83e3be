"""Jobs in kernels of a workplace: a leash for those that nobody asks for, and bounds for clients that ask for many."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.mcp_server import DEADLINE, run

from kernelbox import KernelBoxError, list_kernels
from kernelbox.api._configured import kernels
from kernelbox.core._cell_options import CellOptions
from kernelbox.core._options import KernelOptions
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.shells._asyncio_workplace import ADVICE, Workplace
from kernelbox.tools._toolbox import Toolbox

ENDLESS = "print('begun')\nimport time\nwhile True: time.sleep(0.01)"


@contextlib.asynccontextmanager
async def workplace(folder: Path) -> AsyncIterator[Workplace]:
    options, here = CellOptions(images=str(folder / "images")), kernels()
    new = KernelOptions(cwd=str(folder), env={}, lifetime="process")
    place = Workplace(AsyncKernels(here, new, Toolbox(here.config), advice=ADVICE), options)
    try:
        yield place
    finally:
        await place.stop()


def test_a_job_that_no_call_asks_for_is_cancelled(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            job = await place.begin("a", ENDLESS)
            with job.attended(0.05), job.attended(3600):
                while "begun" not in job.cell.text:  # noqa: ASYNC110  # what a cell writes has no event here
                    await asyncio.sleep(0.01)
                assert not job.done
            await job.wait(DEADLINE)
            assert job.result.ending == "interrupted"
            assert job.result.text.startswith("begun")

    run(scenario)


def test_a_job_that_is_asked_for_in_time_goes_on(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            job = await place.begin("a", ENDLESS)
            with job.attended(0.05):
                pass
            with job.attended(3600):
                await job.wait(0.2)
                assert not job.done

    run(scenario)


def test_a_job_ends_with_its_workplace_and_no_kernel_is_left(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            jobs = [await place.begin(name, ENDLESS) for name in ("a", "b")]
            assert place.running() == jobs
        assert place.running() == []
        assert list_kernels() == []

    run(scenario)


def test_a_call_that_is_cancelled_while_its_kernel_opens_disturbs_no_other(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            opening = asyncio.ensure_future(place.begin("a", "1"))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(place.begin("a", "1 + 1"))
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait({opening})
            job = await second
            await job.wait(DEADLINE)
            assert job.result.return_value == "2"
        assert list_kernels() == []

    run(scenario)


def test_a_call_that_is_cancelled_at_once_leaves_a_kernel_that_was_there(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            await (await place.begin("a", "kept = 5")).wait(DEADLINE)
            busy = await place.begin("a", ENDLESS)
            for steps in range(20):
                cancelled = asyncio.ensure_future(place.begin("a", "1"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                cancelled.cancel()
                await asyncio.wait({cancelled})
                if not cancelled.cancelled():
                    cancelled.result().cancel()
            busy.cancel()
            job = await place.begin("a", "kept")
            await job.wait(DEADLINE)
            assert job.result.return_value == "5", job.result.text

    run(scenario)


def test_no_more_jobs_are_begun_than_there_may_be(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelbox.shells._asyncio_workplace._MOST_RUNNING", 2)

    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            first = await place.begin("a", ENDLESS)
            waiting = await place.begin("a", "1")
            with pytest.raises(KernelBoxError, match="wait for some"):
                await place.begin("b", "1")
            waiting.cancel()
            await waiting.wait(DEADLINE)
            assert waiting.result.ending == "never ran"
            assert not first.done
            third = await place.begin("b", "3")
            await third.wait(DEADLINE)
            assert third.result.return_value == "3"

    run(scenario)


def test_calls_that_come_at_the_same_moment_are_counted_before_their_kernel_is_open(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelbox.shells._asyncio_workplace._MOST_RUNNING", 3)

    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            begun = await asyncio.gather(*(place.begin("a", ENDLESS) for _ in range(10)), return_exceptions=True)
            assert len([job for job in begun if isinstance(job, KernelBoxError)]) == 7
            assert len(place.running()) == 3

    run(scenario)


def test_the_last_results_are_kept_and_older_ones_are_not(tmp_path: Path, home: Path) -> None:
    async def scenario() -> None:
        async with workplace(tmp_path) as place:
            jobs = []
            for number in range(40):
                jobs.append(await place.begin("a", str(number)))
                await jobs[-1].wait(DEADLINE)
            assert place.job(jobs[-1].id).result.return_value == "39"
            with pytest.raises(KernelBoxError, match="run the code again"):
                place.job(jobs[0].id)

    run(scenario)
