"""A job that this process runs: its record is whole at any time, also on a full disk and after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.bounded import DEADLINE, run
from tests.support.homes import new_home
from tests.support.store import fill, held_in, mounted, shortage

from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._errors import KernelNotFound
from kernelbox.host.files._home import Home
from kernelbox.host.store._job_journal import Journal
from kernelbox.server.http._callers import Caller
from kernelbox.server.http._long_json import PIECE
from kernelbox.server.jobs._job_service import Jobs
from kernelbox.server.jobs._running_job import RunningJob
from kernelbox.shells._asyncio_cell import CellOutput
from kernelbox.wire._results import ExecutionResult, OutputItem

if TYPE_CHECKING:
    from kernelbox.shells._asyncio_cell import OnEvent


def test_what_came_of_a_job_is_written_also_when_no_descriptor_is_free(home: Path) -> None:
    config = KernelBoxConfig.from_env()
    journal, job_id = Journal(Home(config.home, config.key_file)), "1" * 32
    entry = journal.claim(job_id, {"state": "running"})
    assert entry is not None
    short = contextlib.ExitStack()

    async def work(on_event: object, on_begin: object) -> ExecutionResult:
        short.enter_context(shortage(0))
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        return ExecutionResult("success", return_value="42")

    async def main() -> RunningJob:
        job = RunningJob(entry, {"id": job_id, "state": "running"}, journal, work)
        with short:
            await job.task
        return job

    job = run(main)
    record = journal.read(job_id)
    assert record is not None
    del record["changed_at"]
    assert record == job.outcome
    assert record["state"] == "done"
    result = journal.read_result(job_id)
    assert result == job.result
    assert json.loads(result or b"")["return_value"] == "42"


def test_a_record_for_which_there_is_no_room_leaves_the_earlier_one(key_file: Path) -> None:
    with new_home() as directory, mounted(directory, "size=64k,mode=700") as disk:
        journal = Journal(Home(str(disk / "home"), str(key_file)))
        entry = journal.claim("1" * 32, {"state": "running"})
        assert entry is not None
        fill(disk)
        with pytest.raises(OSError, match="No space left"):
            entry.append([], {"state": "running", "name": "x" * 5_000})
        record = journal.read("1" * 32)
        assert record is not None
        assert (record["state"], "name" in record) == ("running", False)


# The second write(2) of the record, after one that took only a part, ends the process.
_CRASH = """
import resource, signal, sys
from kernelbox.host.files._home import Home
from kernelbox.host.store._job_journal import Journal

entry = Journal(Home(*sys.argv[1:])).claim("1" * 32, {"state": "running"})
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
entry.append([], {"state": "running", "name": "x" * 5_000})
"""


def test_a_job_is_lost_whose_server_crashes_in_the_middle_of_writing_its_record(key_file: Path) -> None:
    with new_home() as home:
        crash = [sys.executable, "-c", _CRASH, str(home), str(key_file)]
        assert subprocess.run(crash, timeout=DEADLINE, check=False).returncode == -signal.SIGXFSZ
        record = Journal(Home(str(home), str(key_file))).read("1" * 32)
        assert record is not None
        assert (record["state"], "name" in record) == ("lost", False)


def test_a_job_holds_its_file_open_while_it_runs_and_nothing_else(key_file: Path) -> None:
    with new_home() as home:
        journal = Journal(Home(str(home), str(key_file)))
        entry = journal.claim("1" * 32, {"state": "running"})
        assert entry is not None
        entry.append([(1, "started", b"{}")], {"state": "running"})
        assert held_in(home / "jobs") == ["1" * 32]
        for number in (2, 3):
            entry.append([(number, "output", b"x" * 300_000)])
        assert held_in(home / "jobs") == ["1" * 32]
        assert len(list((home / "jobs").iterdir())) == 3
        entry.finish({"state": "done", "last": 4}, (4, "result", b"{}"))
        assert held_in(home / "jobs") == []


def test_a_job_that_was_refused_holds_no_file_open(key_file: Path) -> None:
    async def refuse(on_event: object, on_begin: object) -> ExecutionResult:
        raise KernelNotFound("nobody")

    async def main(jobs: Jobs) -> None:
        for _ in range(3):
            with pytest.raises(KernelNotFound):
                await jobs.begin(Caller(""), {"fingerprint": "x"}, refuse)
        await jobs.settle()

    with new_home() as home:
        jobs = Jobs(Journal(Home(str(home), str(key_file))), None)  # type: ignore[arg-type]  # no kernel is asked
        gc.disable()  # a file that only the collector would close counts
        try:
            run(lambda: main(jobs))
            held = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
            assert not [path for path in held if "/jobs/" in path]
        finally:
            gc.enable()


def test_nothing_is_deleted_because_descriptors_are_short(key_file: Path) -> None:
    with new_home() as home:
        journal = Journal(Home(str(home), str(key_file)))
        entry = journal.claim("1" * 32, {"state": "running"})
        assert entry is not None
        with shortage(0):  # so that no other file can be begun
            for number in (1, 2, 3):
                entry.append([(number, "output", b"x" * 200_000)])
            entry.finish({"state": "done", "last": 4}, (4, "result", b"{}"))
        follower = journal.follow("1" * 32, 0)
        found = follower.read()
        while follower.is_behind:
            found += follower.read()
        follower.close()
        assert [(number, kind) for number, kind, _ in found] == [
            (1, "output"),
            (2, "output"),
            (3, "output"),
            (4, "result"),
        ]


def test_a_job_that_is_cancelled_while_it_writes_its_result_writes_to_no_other_file(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, write = "x" * (2 * PIECE), os.write
    is_cancelled = threading.Event()

    async def work(*_: object) -> ExecutionResult:
        return ExecutionResult("success", output=text)

    async def main(home: Path) -> list[tuple[int, str, bytes | bytearray]]:
        is_writing, loop = asyncio.Event(), asyncio.get_running_loop()

        def write_slowly(fd: int, data: bytes) -> int:
            if len(data) > PIECE:
                loop.call_soon_threadsafe(is_writing.set)
                assert is_cancelled.wait(DEADLINE)
            return write(fd, data)

        monkeypatch.setattr(os, "write", write_slowly)
        journal = Journal(Home(str(home), str(key_file)))
        entry = journal.claim("1" * 32, {"state": "running"})
        assert entry is not None
        job = RunningJob(entry, {"id": "1" * 32, "state": "running"}, journal, work)
        await is_writing.wait()
        job.task.cancel()
        await asyncio.wait({job.task})
        with contextlib.ExitStack() as stack:
            others = [tmp_path / f"other-{number}" for number in range(10)]
            for other in others:
                stack.enter_context(other.open("wb"))
            is_cancelled.set()
            await loop.shutdown_default_executor()
        assert {other.stat().st_size for other in others} == {0}
        follower = journal.follow("1" * 32, 0)
        found = follower.read()
        while follower.is_behind:
            found += follower.read()
        follower.close()
        return found

    with new_home() as home:
        [(number, kind, event)] = run(lambda: main(home))
        assert (number, kind) == (1, "result")
        assert json.loads(event)["result"]["output"] == text
        gc.collect()
        assert held_in(home / "jobs") == []


def test_others_are_served_while_the_disk_hangs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(on_event: OnEvent, on_begin: object) -> ExecutionResult:
        on_event(CellOutput(OutputItem("stream", text="printed")))
        return ExecutionResult("success", return_value="42")

    async def main() -> tuple[list[str], bytes | None]:
        loop, hung = asyncio.get_running_loop(), set()

        def hang(name: str) -> Callable[..., Any]:
            call = getattr(os, name)

            def wait(*args: Any, **options: Any) -> Any:
                others = threading.Event()
                loop.call_soon_threadsafe(others.set)
                assert others.wait(DEADLINE)
                hung.add(name)
                return call(*args, **options)

            return wait

        config = KernelBoxConfig.from_env()
        jobs = Jobs(Journal(Home(config.home, config.key_file)), kernels=None)  # type: ignore[arg-type]  # none is needed
        with monkeypatch.context() as patched:
            for name in ("open", "link", "write"):
                patched.setattr(os, name, hang(name))
            job_id = await jobs.begin(Caller(), {"fingerprint": ""}, work)
            ended = await jobs.result(job_id)
        assert ended is not None
        assert hung == {"open", "link", "write"}
        return [kind async for _, kind, _ in jobs.events(job_id, 0)], ended[1]

    kinds, result = run(main)
    assert kinds == ["output", "result"]
    assert json.loads(result or b"")["return_value"] == "42"
