"""Cells of front ends as the service counts them: in its metrics, in its limits, and when it is stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.front_ends import attached
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, serving


def measure(served: Served, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(served.http.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def test_cells_of_front_ends_are_in_the_metrics(served: Served, kernel_id: str) -> None:
    names = (
        ("kernelbox_executions_total", {"status": "success"}),
        ("kernelbox_failures_total", {"cause": "exception"}),
    )
    before = [measure(served, name, **labels) for name, labels in names]
    with attached(served, kernel_id) as front_end:
        front_end.run("1")
        front_end.run("1 / 0")
    assert [measure(served, name, **labels) for name, labels in names] == [count + 1 for count in before]


def test_a_cell_of_a_front_end_is_counted_while_it_runs(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as front_end:
        request = front_end.send(
            "execute_request", {"code": "print('begun', flush=True)\nimport time; time.sleep(100)"}
        )
        while front_end.receive().kind != "stream":
            pass
        assert measure(served, "kernelbox_executions_running") == 1
        assert served.http.get(f"/api/kernels/{kernel_id}").json()["execution_state"] == "busy"
        served.post(f"/api/kernels/{kernel_id}/interrupt")
        assert front_end.finish(request).content["ename"] == "KeyboardInterrupt"
    assert measure(served, "kernelbox_executions_running") == 0


@pytest.mark.slow
@pytest.mark.parametrize(("grace", "told"), [("60", (1, 0)), ("0", (0, 1))])
def test_a_server_that_is_stopped_says_what_became_of_the_cell_of_a_front_end(
    tmp_path: Path, key_file: Path, grace: str, told: tuple[int, int]
) -> None:
    log = tmp_path / "log"
    code = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go-on'): time.sleep(0.01)\n'done'"
    with new_home() as home, serving(tmp_path, "--grace", grace, LOG=str(log), KERNELBOX_HOME=str(home)) as served:
        kernel_id = served.post("/api/kernels", {}).json()["id"]
        with attached(served, kernel_id) as front_end:
            request = front_end.send("execute_request", {"code": code})
            while front_end.receive().kind != "stream":
                pass
            served.process.terminate()
            if grace != "0":
                late = front_end.send("execute_request", {"code": "1"})
                while served.http.get("/ready").status_code != 503:
                    pass
                (tmp_path / "go-on").touch()
            answered = front_end.finish(request)
            if grace == "0":
                assert answered.content["ename"] == "KeyboardInterrupt"
            else:
                assert answered.content["status"] == "ok"
                assert front_end.finish(late).content["ename"] == "LimitReached"
        assert served.process.wait(DEADLINE) == 0
        wiped = subprocess.run(
            [sys.executable, "-m", "kernelbox", "wipe"],
            env={**os.environ, "KERNELBOX_HOME": str(home)},
            check=True,
            capture_output=True,
        )
    assert uuid.UUID(kernel_id).hex in wiped.stdout.decode()  # it stays
    stopping = next(line for line in map(json.loads, log.read_text().splitlines()) if "cells_finished" in line)
    assert (stopping["cells_finished"], stopping["cells_interrupted"]) == told


@pytest.mark.slow
def test_a_front_end_is_told_no_path_of_the_operators(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home)) as served:
        kernel_id = served.post("/api/kernels", {}).json()["id"]
        with attached(served, kernel_id) as front_end:
            front_end.run("1")
            (home / "runtime").rename(home / "moved")
            (home / "runtime").write_text("no directory")
            told = front_end.ask("shutdown_request", channel="control", restart=True).content
            (home / "runtime").unlink()
            (home / "moved").rename(home / "runtime")
        served.http.delete("/kernels")
    assert told["status"] == "error"
    assert str(home) not in told["evalue"]
