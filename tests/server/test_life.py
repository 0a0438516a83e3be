"""How a server ends: what becomes of running cells, and of kernels; and what its log says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2
import pexpect
import pytest
from tests.support.bounded import run
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, serving
from websockets.sync.client import connect

from kernelbox import ExecutionResult
from kernelbox.server._service_options import ServiceOptions
from kernelbox.server.routes._app_state import make_state


def wait_until_running(served: Served, key: str) -> None:
    while served.http.get(f"/kernels/{key}").json()["kernel"]["status"] != "running":
        pass


def wait_until_draining(served: Served) -> None:
    """Waits until the server has taken a signal to stop."""
    while served.http.get("/ready").status_code != 503:
        pass


def run_in_thread(served: Served, key: str, code: str) -> tuple[threading.Thread, list[dict[str, Any]]]:
    results: list[dict[str, Any]] = []

    def run() -> None:
        answer = httpx2.post(f"{served.url}/kernels/{key}/execute", json={"code": code}, timeout=DEADLINE)
        results.append(answer.json())

    thread = threading.Thread(target=run)
    thread.start()
    wait_until_running(served, key)
    return thread, results


@pytest.mark.slow
def test_kernels_survive_the_server_and_are_found_again_by_the_next(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as first:
            first.post("/sessions/kept/execute", {"code": "x = 42"})
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as second:
            assert second.execute("kept", "x")["return_value"] == "42"
            second.http.delete("/kernels")


def test_two_servers_on_one_home_see_the_same_kernels(served: Served, other: Served) -> None:
    served.post("/sessions/shared/execute", {"code": "x = 1"})
    assert other.execute("shared", "x")["return_value"] == "1"
    other.post("/kernels/shared/restart")
    assert served.execute("shared", "x")["error"]["ename"] == "NameError"
    other.http.delete("/kernels/shared")
    assert served.post("/kernels/shared/execute", {"code": "1"}).status_code == 404


@pytest.mark.slow
def test_a_server_that_is_stopped_lets_cells_come_to_their_end(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        with serving(tmp_path, "--grace", "60", KERNELBOX_HOME=str(home)) as served:
            served.post("/sessions/last")
            ready = tmp_path / "ready"
            code = f"import os, time\nwhile not os.path.exists({str(ready)!r}): time.sleep(0.01)\n'done'"
            thread, results = run_in_thread(served, "last", code)
            served.process.terminate()
            wait_until_draining(served)
            refused = served.post("/kernels/last/execute", {"code": "1"})
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert served.http.get("/health").status_code == 200
            ready.touch()
            thread.join(DEADLINE)
            assert results[0]["return_value"] == "'done'"
            assert served.process.wait(DEADLINE) == 0
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as served:
            served.http.delete("/kernels")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_cells_that_go_on_after_the_grace_are_interrupted_and_their_clients_told(
    tmp_path: Path, key_file: Path, number: signal.Signals
) -> None:
    with new_home() as home:
        with serving(tmp_path, "--grace", "0.1", KERNELBOX_HOME=str(home)) as served:
            served.post("/sessions/endless")
            code = "import time\nx = 1\nwhile True: time.sleep(0.01)"
            thread, results = run_in_thread(served, "endless", code)
            job_id = served.post("/sessions/other/jobs", {"code": code}).json()["id"]
            served.process.send_signal(number)
            thread.join(DEADLINE)
            assert (results[0]["error"]["ename"], results[0]["state"]) == ("Cancelled", "kept")
            assert served.process.wait(DEADLINE) == 0
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as served:
            assert served.execute("endless", "x")["return_value"] == "1"
            job = served.http.get(f"/jobs/{job_id}").json()
            assert (job["state"], job["result"]["error"]["ename"]) == ("done", "Cancelled")
            served.http.delete("/kernels")


@pytest.mark.slow
def test_a_second_signal_ends_the_grace(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        with serving(tmp_path, "--grace", "1000", KERNELBOX_HOME=str(home)) as served:
            served.post("/sessions/endless")
            thread, results = run_in_thread(served, "endless", "import time\nwhile True: time.sleep(0.01)")
            served.process.terminate()
            wait_until_draining(served)
            served.process.terminate()
            thread.join(DEADLINE)
            assert results[0]["error"]["ename"] == "Cancelled"
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as served:
            served.http.delete("/kernels")


def test_a_cell_that_is_on_its_way_to_its_kernel_when_the_server_is_stopped_is_stopped_too(
    home: Path, tmp_path: Path
) -> None:
    async def stop_meanwhile() -> ExecutionResult:
        state = make_state(ServiceOptions(workspace=str(tmp_path)))
        await state.kernels.open("late")
        code, options = "import time\nwhile True: time.sleep(0.01)", state.executions.options_for("python")
        running = asyncio.ensure_future(state.executions.run(await state.kernels.kernel("late"), code, options))
        await asyncio.sleep(0)  # until it connects to the kernel, in a thread
        await state.executions.drain(1000.0, hurry=asyncio.Event())
        return await running

    result = run(stop_meanwhile)
    assert result.error is not None
    assert result.error.ename == "Cancelled"


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_kernels_that_go_on(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as served:
            served.post("/sessions/orphan/execute", {"code": "x = 7"})
            served.process.kill()
        with serving(tmp_path, KERNELBOX_HOME=str(home)) as served:
            assert served.execute("orphan", "x")["return_value"] == "7"
            served.http.delete("/kernels")


@pytest.mark.slow
def test_the_log_is_lines_of_json_with_the_ids_of_requests_and_kernels(tmp_path: Path, key_file: Path) -> None:
    secret = "not-to-be-in-any-log"
    command = [sys.executable, "-m", "kernelbox", "serve", "--port", "0", "--workspace", str(tmp_path)]
    with new_home() as home:
        env = {**os.environ, "KERNELBOX_HOME": str(home), "KERNELBOX_TOKEN": secret}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, env=env, **pipes) as process:  # type: ignore[call-overload]
            url = json.loads(process.stdout.readline())["url"]
            headers = {"Authorization": f"Bearer {secret}", "X-Request-ID": "mine-1"}
            with httpx2.Client(base_url=url, headers=headers, timeout=DEADLINE) as client:
                made = client.post("/sessions/logged")
                assert made.headers["x-request-id"] == "mine-1"
                forged = client.get("/kernels", headers={"X-Request-ID": 'x"} forged'})
                assert forged.headers["x-request-id"] != 'x"} forged'
                client.get(f"/kernels/logged?token={secret}", headers={"Authorization": ""})
                client.post("/kernels/logged/execute?x=in-a-query", json={"code": "'in-a-body'"})
                path = f"{url.replace('http:', 'ws:')}/kernels/logged/stream?token={secret}&x=in-a-query"
                with connect(path, open_timeout=DEADLINE, proxy=None) as socket:
                    socket.send(json.dumps({"code": "'in-a-body'"}))
                    assert "job_id" in socket.recv(DEADLINE)
                client.delete("/kernels")
            process.terminate()
            _, text = process.communicate(timeout=DEADLINE)
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert [line["path"] for line in requests][:2] == ["/sessions/logged", "/kernels"]
    assert requests[0].keys() >= {"time", "level", "logger", "request_id", "method", "status", "duration_ms"}
    assert requests[0]["request_id"] == "mine-1"
    executed = next(line for line in requests if line["path"].endswith("/execute"))
    assert executed["kernel_id"] == made.json()["kernel_id"]
    stopping = next(line for line in lines if line["message"].startswith("stopping"))
    assert (stopping["cells_finished"], stopping["cells_interrupted"]) == (0, 0)
    for hidden in (secret, "in-a-query", "in-a-body"):
        assert hidden not in text


def test_on_a_terminal_the_address_and_the_log_are_for_people(tmp_path: Path) -> None:
    with new_home() as home:
        env = {**os.environ, "KERNELBOX_HOME": str(home), "TERM": "xterm"}
        words = ["-m", "kernelbox", "serve", "--port", "0", "--workspace", str(tmp_path)]
        child = pexpect.spawn(sys.executable, words, env=env, encoding="utf-8", timeout=DEADLINE, dimensions=(24, 120))
        try:
            child.expect(r"serving (http://[\d.:]+), explained at /docs; Ctrl-C ends it\r\n")
            with httpx2.Client(base_url=str(child.match.group(1)), timeout=DEADLINE, trust_env=False) as client:
                client.get("/kernels/no%0Asuch%1B")
            child.expect(r"\d\d:\d\d:\d\d GET /kernels/no\\nsuch\\x1b 404 \d+ ms\r\n")
            child.sendcontrol("c")
            child.expect("stopping: kernels stay, and are found again")
            child.expect(pexpect.EOF)
        finally:
            child.close(force=True)
