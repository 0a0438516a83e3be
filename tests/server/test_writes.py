"""How answers are written to the network."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from tests.support.server import DEADLINE, Served


def test_the_head_and_the_body_of_an_answer_come_in_one_piece(served: Served) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname or "", address.port or 0), DEADLINE) as client:
        for _ in range(20):
            client.sendall(f"GET /health HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            assert client.recv(65536).endswith(b"}")


def test_the_head_of_an_answer_does_not_wait_for_a_body_that_takes_long(served: Served, key: str) -> None:
    code = {"code": "import os, time\nwhile not os.path.exists('go-on'): time.sleep(0.01)"}
    job_id = served.post(f"/kernels/{key}/jobs", code).json()["id"]
    with served.http.stream("GET", f"/jobs/{job_id}/events?after=1") as answer:
        assert answer.status_code == 200
        (served.workspace / "go-on").touch()
        assert "result" in answer.read().decode()


def test_a_connection_that_is_to_be_closed_gets_its_whole_answer(served: Served) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname or "", address.port or 0), DEADLINE) as client:
        head = f"HEAD /health HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        heard = b""
        while piece := client.recv(65536):
            heard += piece
    assert heard.endswith(b"\r\n\r\n")
