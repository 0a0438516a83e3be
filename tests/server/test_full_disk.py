"""The service where a disk is full: of the home, where jobs are written, and of the workspace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.homes import new_home
from tests.support.server import Served, events_of, serving
from tests.support.store import fill, mounted

MEBIBYTE = 1024 * 1024


@pytest.fixture
def cramped(tmp_path: Path, key_file: Path) -> Iterator[tuple[Served, Path]]:
    """Starts a server whose home and workspace are on one small disk; yields it and the disk."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(mounted(stack.enter_context(new_home()), "size=4m,mode=700"))
        (disk / "workspace").mkdir()
        served = stack.enter_context(serving(disk / "workspace", KERNELBOX_HOME=str(disk / "home")))
        served.post("/sessions/cramped")
        yield served, disk
        served.http.delete("/kernels")


@pytest.mark.slow
def test_a_job_that_writes_more_than_the_disk_has_room_for_comes_to_its_end(cramped: tuple[Served, Path]) -> None:
    served, _ = cramped
    code = f"for _ in range(100): print('x' * {MEBIBYTE // 10})\n'done'"
    job_id = served.post("/kernels/cramped/jobs", {"code": code}).json()["id"]
    events = list(events_of(served, job_id))
    assert events[-1]["result"]["return_value"] == "'done'"
    assert served.http.get(f"/jobs/{job_id}").json()["state"] == "done"
    assert next(events_of(served, job_id))["type"] == "dropped"


@pytest.mark.slow
def test_the_events_of_a_job_make_room_for_its_result(cramped: tuple[Served, Path]) -> None:
    served, _ = cramped
    body = {"code": f"print('x' * {MEBIBYTE * 6 // 10})", "output_char_limit": 0}
    job_id = served.post("/kernels/cramped/jobs", body).json()["id"]
    while (job := served.http.get(f"/jobs/{job_id}").json())["state"] == "running":
        pass
    assert len(job["result"]["output"]) == MEBIBYTE * 6 // 10 + 1


@pytest.mark.slow
def test_a_job_whose_end_cannot_be_written_ends_for_those_who_wait_and_is_not_run_again(
    cramped: tuple[Served, Path],
) -> None:
    served, disk = cramped
    code = "import os, time\nruns = globals().get('runs', 0) + 1\nwhile not os.path.exists('full'): time.sleep(0.01)"
    body = {"code": f"{code}\n'x' * 500_000"}
    once = {"Idempotency-Key": "once"}
    job_id = served.post("/kernels/cramped/jobs", body, **once).json()["id"]
    fill(disk)
    (disk / "workspace" / "full").touch()  # needs no room on this kind of disk
    *_, last = events_of(served, job_id)
    assert last["type"] in ("lost", "result")
    assert served.http.get(f"/jobs/{job_id}").status_code == 404
    assert served.post("/kernels/cramped/jobs", body, **once).status_code == 409
    assert served.execute("cramped", "runs")["return_value"] == "1"


@pytest.mark.slow
def test_a_job_is_not_begun_where_nothing_can_be_written(cramped: tuple[Served, Path]) -> None:
    served, disk = cramped
    filler = fill(disk)
    once = {"Idempotency-Key": "once"}
    for path in ("/kernels/cramped/jobs", "/kernels/cramped/execute"):
        refused = served.post(path, {"code": "x = 1"}, **once)
        assert (refused.status_code, refused.json()["code"]) == (500, "store_failed")
    assert served.execute("cramped", "x")["error"]["ename"] == "NameError"
    filler.unlink()
    assert served.post("/kernels/cramped/execute", {"code": "2"}, **once).json()["return_value"] == "2"


@pytest.mark.slow
def test_a_file_for_which_there_is_no_room_is_not_written(cramped: tuple[Served, Path]) -> None:
    served, disk = cramped
    served.http.put("/files/kept", content=b"before")
    answer = served.http.put("/files/kept", content=b"x" * 8 * MEBIBYTE)
    assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
    assert [path.name for path in (disk / "workspace").iterdir()] == ["kept"]
    assert (disk / "workspace" / "kept").read_bytes() == b"before"
