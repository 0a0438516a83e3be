"""Abuse of the service as a whole: every route without a token and with another caller's, floods, dead connections."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, events_of, fill, operations, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

ANN, BOB = "anns-own-secret-word", "bobs-own-secret-word"
OPEN = ("/", "/health", "/ready")
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def shared(key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Starts a server for two callers, that takes files of one mebibyte."""
    folder = tmp_path_factory.mktemp("shared")
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[[token]]\nname = "ann"\nsecret = "{ANN}"\n[[token]]\nname = "bob"\nsecret = "{BOB}"\n')
    tokens.chmod(0o600)
    (folder / "workspace").mkdir()
    words = ["--tokens", str(tokens), "--max-upload", "1"]
    with new_home() as home, serving(folder / "workspace", *words, KERNELBOX_HOME=str(home)) as server:
        yield server
        for secret in (ANN, BOB):
            server.http.delete("/kernels", headers=bearer(secret))


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


# -- tokens and tenants ----------------------------------------------------------------------------------------


def test_no_route_but_the_open_ones_answers_without_a_token(shared: Served) -> None:
    for method, path in operations(shared):
        for headers in ({}, bearer("wrong"), bearer(f"{ANN} {BOB}"), {"Authorization": f"Basic {ANN}"}):
            answer = shared.http.request(method, fill(path), headers=headers)
            assert answer.status_code == (200 if path in OPEN else 401), (method, path)


def test_no_route_leads_to_the_kernel_of_another_caller(shared: Served) -> None:
    kernel_id = shared.http.post("/sessions/secret", headers=bearer(ANN)).json()["kernel_id"]
    job = shared.http.post("/kernels/secret/jobs", json={"code": "import time; time.sleep(100)"}, headers=bearer(ANN))
    job_id = job.json()["id"]
    tried = 0
    for method, path in operations(shared):
        if "{key}" not in path and "{job_id}" not in path and "{kernel_id}" not in path:
            continue
        body: dict[str, object] = {"accept": True} if "approvals" in path else {"code": "1"}
        for key in (kernel_id, "secret", "ann:secret"):
            filled = fill(path, key=key, kernel_id=kernel_id, job_id=job_id)
            answer = shared.http.request(method, filled, json=body, headers=bearer(BOB))
            assert answer.status_code == 404, (method, filled)
            tried += 1
    assert tried > 50
    for path in (f"/kernels/{kernel_id}/stream", f"/jobs/{job_id}/events", f"/api/kernels/{kernel_id}/channels"):
        assert not list(heard(shared, path, BOB)), path
    about = shared.http.get(f"/jobs/{job_id}", headers=bearer(ANN)).json()
    assert (about["state"], about["kernel_id"]) == ("running", kernel_id)
    assert shared.http.get("/kernels/secret", headers=bearer(ANN)).json()["alive"] is True
    shared.http.post(f"/jobs/{job_id}/cancel", headers=bearer(ANN))


def heard(served: Served, path: str, secret: str) -> Iterator[Any]:
    """Yields what a WebSocket says that is no refusal."""
    url = f"{served.url.replace('http:', 'ws:')}{path}"
    with contextlib.suppress(ConnectionClosed, InvalidStatus):
        with connect(url, open_timeout=DEADLINE, proxy=None, additional_headers=bearer(secret)) as client:
            client.send(json.dumps({"code": "1"}))
            while True:
                said = json.loads(client.recv(timeout=DEADLINE))
                if said.get("type") != "failed":
                    yield said


def test_a_session_of_the_same_name_is_another_kernel(shared: Served) -> None:
    for secret in (ANN, BOB):
        shared.http.post("/sessions/common/execute", json={"code": f"x = {secret!r}"}, headers=bearer(secret))
    told = shared.http.post("/sessions/common/execute", json={"code": "x"}, headers=bearer(BOB)).json()
    assert told["return_value"] == repr(BOB)
    stolen = shared.http.post("/sessions/ann:common/execute", json={"code": "x"}, headers=bearer(BOB)).json()
    assert stolen["error"]["ename"] == "NameError"


def test_ids_of_jobs_cannot_be_chosen_so_as_to_meet_another_callers(shared: Served) -> None:
    key = {"Idempotency-Key": "the-same-key"}
    ids = set()
    for secret in (ANN, BOB):
        answer = shared.http.post("/sessions/keyed/execute", json={"code": "1"}, headers=bearer(secret) | key)
        assert answer.status_code == 200
        ids.add(answer.headers["location"])
    assert len(ids) == 2


# -- names and paths -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc%2fpasswd", "%2e%2e", ".", "a%2fb", "%00", "x%0ay", "-rf", "~root", "%2fetc", "..%5c..%5cx"]
)
def test_a_name_leads_to_no_file(served: Served, service_home: Path, name: str) -> None:
    served.post("/sessions/ordinary/execute", {"code": "1"})
    before = {path.name for path in service_home.iterdir()}
    for method, path in (("POST", "/sessions/{}"), ("GET", "/kernels/{}"), ("GET", "/jobs/{}"), ("GET", "/images/{}")):
        status, answer = raw(served, method, path.format(name))
        assert status in (200, 404, 405, 422), answer
        assert b"root:" not in answer
    assert {path.name for path in service_home.iterdir()} - before == set()
    raw(served, "DELETE", f"/kernels/{name}")


def raw(served: Served, method: str, path: str) -> tuple[int, bytes]:
    """Sends a path as it is; clients would tidy it up."""
    with dial(served) as client:
        client.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    return int(answer.split(b" ", 2)[1]), answer


def dial(served: Served) -> socket.socket:
    host, port = served.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE)


# -- size ------------------------------------------------------------------------------------------------------


def memory_of(served: Served) -> int:
    return psutil.Process(served.process.pid).memory_info().rss


def send_parts(served: Served, head: str, size: int) -> bytes:
    """Sends a request in parts without saying how large it is, until the server has enough; returns its answer."""
    part = b"%x\r\n%s\r\n" % (MEBIBYTE, b"x" * MEBIBYTE)
    with dial(served) as client:
        client.sendall(f"{head}\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(size):
                client.sendall(part)
        with contextlib.suppress(ConnectionError):
            return client.recv(100)
    return b""


def test_a_body_of_a_gigabyte_is_cut_off_and_takes_no_memory(served: Served) -> None:
    served.http.get("/health")
    before = memory_of(served)
    answer = send_parts(served, "POST /sessions/large/execute HTTP/1.1\r\nContent-Type: application/json", 1024)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    assert memory_of(served) - before < 100 * MEBIBYTE
    assert served.http.get("/kernels/large").status_code == 404


def test_a_file_that_is_too_large_is_cut_off_and_leaves_nothing(shared: Served) -> None:
    head = f"PUT /files/large/file HTTP/1.1\r\nAuthorization: Bearer {ANN}"
    answer = send_parts(shared, head, 1024)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    while list((shared.workspace / "ann").glob("large/.*")):
        pass
    assert shared.http.get("/files/large/file", headers=bearer(ANN)).status_code == 404
    announced = shared.http.put("/files/f", content=b"x" * (MEBIBYTE + 1), headers=bearer(ANN))
    assert announced.status_code == 413
    assert shared.http.put("/files/f", content=b"x" * MEBIBYTE, headers=bearer(ANN)).status_code == 201


# -- floods and dead connections -------------------------------------------------------------------------------


def test_a_flood_of_messages_over_a_websocket_keeps_nobody_waiting(served: Served, key: str) -> None:
    url = f"{served.url.replace('http:', 'ws:')}/kernels/{key}/stream"
    with connect(url, open_timeout=DEADLINE, close_timeout=DEADLINE, proxy=None) as client:
        client.send(json.dumps({"code": "import time\nwhile True: time.sleep(0.01)"}))
        assert json.loads(client.recv(timeout=DEADLINE))["type"] == "started"
        with contextlib.suppress(ConnectionClosed):  # the first has ended the cell
            for _ in range(2000):
                client.send(json.dumps({"type": "cancel", "x": "y" * 1000}))
        assert httpx2.get(f"{served.url}/health", timeout=DEADLINE).status_code == 200
        last = json.loads(client.recv(timeout=DEADLINE))
        while last["type"] != "result":
            last = json.loads(client.recv(timeout=DEADLINE))
    assert last["result"]["error"]["ename"] == "Cancelled"
    assert served.execute(key, "'goes on'")["return_value"] == "'goes on'"


def test_a_client_that_is_gone_without_a_word_leaves_its_cell_to_be_followed(served: Served, key: str) -> None:
    """A reset instead of a close, in the middle of a stream: what a client that was killed leaves."""
    with dial(served) as client:
        body = json.dumps({"code": "import time\nfor n in range(20): print(n, flush=True); time.sleep(0.02)\n'end'"})
        head = f"POST /kernels/{key}/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        said = b""
        while b'"stdout"' not in said:
            said += client.recv(65536)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close(2) resets the connection
    job_id = said.partition(b"location: /jobs/")[2][:32].decode()
    events = list(events_of(served, job_id))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["result"]["return_value"] == "'end'"


@pytest.mark.slow
def test_a_websocket_whose_client_is_half_open_is_closed(served: Served, key: str) -> None:
    """It answers no ping: the network between has gone, and neither side is told."""
    nonce = base64.b64encode(os.urandom(16)).decode()
    with dial(served) as client:
        upgrade = (
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}"
        )
        client.sendall(f"GET /kernels/{key}/stream HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n\r\n".encode())
        said = b""
        while piece := client.recv(65536):
            said += piece
    assert said.startswith(b"HTTP/1.1 101")
    assert served.execute(key, "1")["return_value"] == "1"


def test_hundreds_of_connections_that_say_nothing_keep_nobody_out(served: Served, key: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(dial(served))
        assert served.execute(key, "1 + 1")["return_value"] == "2"
