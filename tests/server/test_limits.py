"""Clients that send too much, too slowly, or at once more than the server takes."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, serving
from websockets.sync.client import connect as dial


@pytest.fixture(scope="module")
def small(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Starts a server with small limits."""
    words = ["--max-kernels", "2", "--max-queue", "2", "--max-running", "3", "--max-body", "1"]
    with new_home() as home, serving(tmp_path_factory.mktemp("workspace"), *words, KERNELBOX_HOME=str(home)) as server:
        yield server
        server.http.delete("/kernels")


def connect(served: Served) -> socket.socket:
    host, port = served.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE)


def test_a_request_that_says_it_is_too_large_is_refused_before_it_is_sent(small: Served) -> None:
    with connect(small) as client:
        client.sendall(b"POST /kernels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 5000, "0x10"])
def test_a_length_that_is_none_is_refused(small: Served, length: str) -> None:
    with connect(small) as client:
        client.sendall(f"POST /kernels HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        assert client.recv(100).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


@pytest.mark.parametrize("path", ["/kernels", "/sessions/x/execute"])
def test_a_request_without_a_length_is_cut_off_where_it_is_too_large(small: Served, path: str) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(50):
            yield b"x" * 100_000

    try:
        answer = small.http.post(path, content=parts(), headers={"Content-Type": "application/json"})
    except httpx2.TransportError:
        return  # it was closed while we were sending
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    "head",
    [
        *(b"X-Long: " + b"x" * 200_000, b"X: y\r\n" * 50_000, b"X-Half: " + b"x" * 70_000),
        *(b"X-Whole: " + b"x" * 70_000 + b"\r\n\r\n", b"X: y\r\n" * 20_000 + b"\r\n"),
    ],
    ids=["long", "many", "half", "whole", "many whole"],
)
def test_a_head_that_is_too_large_or_without_end_is_refused(small: Served, head: bytes) -> None:
    with connect(small) as client:
        try:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head)
            assert client.recv(100).startswith(b"HTTP/1.1 400")
        except ConnectionError:
            pass  # it was closed while we were sending
    assert small.http.get("/health").status_code == 200


def test_json_that_is_too_deep_is_refused(small: Served) -> None:
    body = b'{"code": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    answer = small.http.post("/sessions/a/execute", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)


def test_no_more_kernels_are_opened_than_allowed(small: Served) -> None:
    for name in ("one", "two"):
        assert small.post(f"/sessions/{name}").status_code == 200
    for path, body in (
        ("/kernels", {"name": "three"}),
        ("/sessions/three", None),
        ("/sessions/t/execute", {"code": "1"}),
    ):
        answer = small.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (503, "server_full")
        assert int(answer.headers["retry-after"]) > 0
    assert small.post("/sessions/one").status_code == 200
    assert small.execute("two", "1 + 1")["return_value"] == "2"
    small.http.delete("/kernels")


def test_no_more_cells_wait_in_a_kernel_than_allowed(small: Served) -> None:
    small.post("/sessions/full")
    code = {"code": "import time\nwhile True: time.sleep(0.01)"}
    began = threading.Barrier(3)

    def run() -> int:
        began.wait(DEADLINE)
        while (answer := small.post("/kernels/full/execute", code)).status_code == 429:
            pass
        return answer.status_code

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(run) for _ in range(2)]
        began.wait(DEADLINE)
        while (answer := small.post("/kernels/full/execute", {"code": "1", "timeout": 0.1})).status_code == 200:
            pass
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
        assert int(answer.headers["retry-after"]) > 0
        while not all(each.done() for each in waiting):
            small.post("/kernels/full/interrupt")
        assert [each.result() for each in waiting] == [200, 200]
    assert small.execute("full", "'free'")["return_value"] == "'free'"
    small.http.delete("/kernels")


def test_no_more_cells_run_in_all_kernels_than_allowed(small: Served) -> None:
    jobs = []
    for name in ("one", "one", "two"):
        code = {"code": "import time\nwhile True: time.sleep(0.01)"}
        jobs.append(small.post(f"/sessions/{name}/jobs", code).json()["id"])
    for path in ("execute", "jobs", "stream"):
        answer = small.post(f"/sessions/two/{path}", {"code": "1"})
        assert (answer.status_code, answer.json()["code"]) == (503, "server_full")
        assert int(answer.headers["retry-after"]) > 0
    for job_id in jobs:
        small.post(f"/jobs/{job_id}/cancel")
        while small.http.get(f"/jobs/{job_id}").json()["state"] == "running":
            pass
    assert small.execute("two", "'free'")["return_value"] == "'free'"
    small.http.delete("/kernels")


def test_a_hundred_clients_at_once_are_answered(served: Served, key: str) -> None:
    def health() -> int:
        return httpx2.get(f"{served.url}/health", timeout=DEADLINE).status_code

    with ThreadPoolExecutor(50) as pool:
        assert {each.result() for each in [pool.submit(health) for _ in range(100)]} == {200}


def test_what_is_no_http_does_no_harm(small: Served) -> None:
    for rubbish in (b"\x00" * 1000, b"\xff\xfe", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 1000):
        with connect(small) as client:
            client.sendall(rubbish)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1000):
                pass
    assert small.http.get("/health").status_code == 200


def send_byte_by_byte(client: socket.socket) -> bytes:
    """Sends a byte every three seconds, until there is an answer."""
    client.settimeout(3)
    while True:
        try:
            return client.recv(100)
        except TimeoutError:
            client.sendall(b" ")


@pytest.mark.slow
def test_clients_that_take_for_ever_to_send_a_request_are_cut_off(small: Served) -> None:
    with contextlib.ExitStack() as stack:
        silent, head, body, cell, trickle = (stack.enter_context(connect(small)) for _ in range(5))
        head.sendall(b"GET / HTTP/1.1\r\nHost: local")
        body.sendall(b"POST /kernels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        plain = b"POST /sessions/x/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        cell.sendall(plain + b"Content-Length: 10\r\n\r\n{")
        trickle.sendall(plain + b"Content-Length: 1000\r\n\r\n{")
        assert send_byte_by_byte(trickle).startswith(b"HTTP/1.1 408")
        assert silent.recv(100) == b""
        assert head.recv(100) == b""
        assert body.recv(100).startswith(b"HTTP/1.1 408")
        assert cell.recv(100).startswith(b"HTTP/1.1 408")


def test_a_server_lets_itself_open_many_files_says_where_it_can_open_no_more_and_recovers(
    tmp_path: Path, key_file: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home)) as served, contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        allowed = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
        assert allowed == (65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard), hard)
        served.post("/sessions/before")
        host, port = served.url.removeprefix("http://").split(":")
        address = (host, int(port))
        first = stack.enter_context(socket.create_connection(address, timeout=DEADLINE))  # accepted, and unused
        served.http.get("/health")
        opened = len(os.listdir(f"/proc/{served.process.pid}/fd"))
        before = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (opened, before[1]))
        assert served.http.get("/health").status_code == 200
        first.sendall(f"GET /kernels HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert first.recv(65536).startswith(b"HTTP/1.1 503 ")
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, before)
        first.sendall(f"GET /kernels HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert first.recv(65536).startswith(b"HTTP/1.1 200 ")
        served.http.delete("/kernels")


def test_kernels_that_take_long_to_start_keep_nobody_waiting_who_wants_something_else(
    tmp_path: Path, key_file: Path
) -> None:
    gate, slow = tmp_path / "gate", {"env": {"KERNEL_SLOW": "1"}}
    wait = f"while 'KERNEL_SLOW' in os.environ and not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    start_up = {
        "KERNELBOX_STARTUP_CODE": f"import os, time\nopen({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w')\n{wait}"
    }
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home), **start_up) as served:
        served.post("/kernels", {"name": "quick"})
        with ThreadPoolExecutor(20) as pool:
            starting = [pool.submit(served.post, "/api/kernels", slow) for _ in range(20)]
            while served.http.get("/files").json()["total"] <= 16:  # as many as are started at once
                pass
            assert served.http.get("/kernels/quick/variables").status_code == 200
            assert served.post("/sessions/quick/execute", {"code": "6 * 7"}).json()["return_value"] == "42"
            gate.touch()
            assert {each.result(DEADLINE).status_code for each in starting} == {201}
        served.http.delete("/kernels")


@pytest.fixture
def waiting_job(tmp_path: Path, service_home: Path, key: str) -> Iterator[tuple[Served, str, Path]]:
    """Starts a server with a job that ends when a file is made; yields the server, the job and the file."""
    gate = tmp_path / "gate"
    code = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n6 * 7"
    with serving(tmp_path, KERNELBOX_HOME=str(service_home)) as served:
        job_id: str = served.post(f"/sessions/{key}/jobs", {"code": code}).json()["id"]
        yield served, job_id, gate


def test_a_job_that_ends_while_its_server_can_open_nothing_is_told(
    waiting_job: tuple[Served, str, Path], served: Served
) -> None:
    needy, job_id, gate = waiting_job
    before = resource.prlimit(needy.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(needy.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    gate.touch()
    while (job := served.http.get(f"/jobs/{job_id}").json())["state"] == "running":
        pass
    assert job["result"]["return_value"] == "42"
    resource.prlimit(needy.process.pid, resource.RLIMIT_NOFILE, before)


def test_a_server_that_is_stopped_waits_until_what_came_of_its_jobs_is_written(
    waiting_job: tuple[Served, str, Path], served: Served
) -> None:
    stopping, job_id, gate = waiting_job
    stopping.process.terminate()
    while stopping.http.get("/ready").status_code != 503:
        pass
    gate.touch()
    assert stopping.process.wait(DEADLINE) == 0
    assert served.http.get(f"/jobs/{job_id}").json()["result"]["return_value"] == "42"


def crowd(name: str, size: int) -> bytes:
    """Returns a body with so many values, in an object, in a list, or each in the one before."""
    if name == "keys":
        return b'{"code": "1", "tags": {' + b",".join(b'"k%d": ""' % number for number in range(size)) + b"}}"
    if name == "items":
        return b'{"code": "1", "tags": [' + b",".join([b"0"] * size) + b"]}"
    return b'{"code": "1", "tags": ' + b"[" * size + b"]" * size + b"}"


@pytest.mark.parametrize("shape", ["keys", "items", "levels"])
@pytest.mark.parametrize(
    "path", ["/kernels", "/sessions/crowded/execute", "/sessions/crowded/jobs", "/api/kernels", "/kernels/x/complete"]
)
def test_a_body_of_many_values_is_refused_before_it_is_read(served: Served, path: str, shape: str) -> None:
    body = crowd(shape, 1_000_000)
    for kind in ("application/json", "application/json; charset=utf-8"):
        answer = served.http.post(path, content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert answer.json()["detail"] == "the request has more than 200,000 values"


def test_code_may_have_any_number_of_commas_and_brackets(served: Served, key: str) -> None:
    code = f"len({[[], {}, ','] * 20_000})"
    assert served.execute(key, code)["return_value"] == "60000"


@pytest.mark.parametrize("shape", ["keys", "items", "levels"])
def test_a_websocket_message_of_many_values_is_refused_before_it_is_read(served: Served, shape: str) -> None:
    url = f"{served.url.replace('http:', 'ws:')}/sessions/crowded/stream"
    with dial(url, open_timeout=DEADLINE, proxy=None) as client:
        client.send(crowd(shape, 1_000_000).decode())
        said = json.loads(client.recv(DEADLINE))
        assert (said["type"], said["status"], said["code"]) == ("failed", 413, "too_large")
