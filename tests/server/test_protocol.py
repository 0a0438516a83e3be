"""HTTP/1.1 and WebSockets below the routes: what clients send that is no request, and never ends."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from kernelbox import StartFailed
from kernelbox.server.http._listening import require_overridden
from kernelbox.server.http._protocol import BoundedProtocol
from kernelbox.server.http._websocket_protocol import BoundedWebSocket

MEBIBYTE = 1024 * 1024


@contextlib.contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname or "", address.port or 0), DEADLINE) as client:
        yield client


def head(served: Served, first: str, *lines: str) -> bytes:
    return "\r\n".join([f"{first} HTTP/1.1", f"Host: {urlsplit(served.url).netloc}", *lines, "", ""]).encode()


def send_until_refused(client: socket.socket, piece: bytes, most: int) -> int:
    """Sends the same again and again; returns how many bytes could be sent before the connection was closed."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most:
            sent += client.send(piece)
    return sent


def read_all(client: socket.socket) -> bytes:
    """Returns what comes until the connection is closed."""
    heard = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            heard += piece
    return heard


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        pytest.param(b"2\r\n{}\r\n0\r\n", b"X: " + b"y" * 1000 + b"\r\n", id="many trailers"),
        pytest.param(b"2\r\n{}\r\n0\r\nX: ", b"y" * 1000, id="one trailer"),
        pytest.param(b"2;", b"y" * 1000, id="extension of a chunk"),
    ],
)
def test_what_is_neither_head_nor_body_of_a_request_comes_to_an_end(served: Served, begin: bytes, piece: bytes) -> None:
    chunked = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    with connected(served) as client:
        client.sendall(head(served, "POST /sessions/x/execute", *chunked) + begin)
        assert send_until_refused(client, piece, 64 * MEBIBYTE) < 64 * MEBIBYTE
    assert served.http.get("/health").status_code == 200


def test_trailers_of_a_usual_size_are_taken(served: Served, key: str) -> None:
    chunked = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close")
    with connected(served) as client:
        client.sendall(head(served, f"POST /kernels/{key}/execute", *chunked))
        for letter in b'{"code": "6 * 7"}':
            client.sendall(b"1\r\n" + bytes([letter]) + b"\r\n")
        client.sendall(b"0\r\nX-Sum: 1\r\n\r\n")
        assert b'"return_value":"42"' in read_all(client)


def test_requests_that_wait_on_one_connection_are_limited(served: Served) -> None:
    with connected(served) as client:
        answers = 0
        client.sendall(head(served, "GET /health") * 50)
        while answers < 50:
            answers += client.recv(65536).count(b"HTTP/1.1 200")
    with connected(served) as client:
        sent = send_until_refused(client, head(served, "GET /kernels") * 1000, 64 * MEBIBYTE)
        assert sent < 64 * MEBIBYTE


def test_a_request_that_is_no_http_is_answered_in_the_shape_of_all_failures(served: Served) -> None:
    with connected(served) as client:
        client.sendall(b"nonsense\r\n\r\n")
        answer, _, body = read_all(client).partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body) == {"detail": "Invalid HTTP request received.", "code": "bad_request"}


def test_an_answer_that_is_on_its_way_is_not_followed_by_another(served: Served, key: str) -> None:
    code = json.dumps({"code": "print('begun', flush=True); input_never = __import__('time').sleep(100)"}).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(code)}")
    with connected(served) as client:
        client.sendall(head(served, f"POST /kernels/{key}/stream", *lines) + code)
        heard = b""
        while b"begun" not in heard:
            heard += client.recv(65536)
        client.sendall(b"nonsense\r\n\r\n")
        assert b"HTTP/1.1" not in read_all(client)


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://]", "null", "http://a b"])
def test_an_origin_that_is_none_is_refused(served: Served, origin: str) -> None:
    assert served.http.get("/kernels", headers={"Origin": origin}).status_code == 403


def test_a_client_that_sends_pings_and_reads_nothing_is_not_heard_for_ever(served: Served, key: str) -> None:
    pings = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 500
    with connected(served) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
        client.sendall(head(served, f"GET /kernels/{key}/stream", *upgrade, "Sec-WebSocket-Key: " + "A" * 22 + "=="))
        assert client.recv(12) == b"HTTP/1.1 101"
        client.settimeout(5)
        with pytest.raises(TimeoutError):  # its own buffers are full: nobody takes what it sends
            send_until_refused(client, pings, 256 * MEBIBYTE)
    assert psutil.Process(served.process.pid).memory_info().rss < 1024 * MEBIBYTE


def test_a_websocket_message_of_endless_empty_frames_is_refused(served: Served, key: str) -> None:
    url = f"{served.url.replace('http:', 'ws:')}/kernels/{key}/stream"
    with connect(url, open_timeout=DEADLINE, proxy=None) as client:

        def frames() -> Iterator[str]:
            yield "{"
            while True:
                yield ""

        with pytest.raises(ConnectionClosed) as caught:
            client.send(frames())
    reason = caught.value.rcvd  # None if the end of the connection overtook it: the client goes on sending
    assert reason is None or reason.code == 1009


@pytest.mark.slow
def test_what_is_left_of_the_body_of_an_answered_request_does_not_hold_a_connection(served: Served) -> None:
    with connected(served) as client:
        client.sendall(head(served, "POST /nowhere", "Content-Length: 1000000"))
        assert client.recv(65536).startswith(b"HTTP/1.1 404 ")
        client.settimeout(1)
        until = time.monotonic() + DEADLINE
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < until:
                with contextlib.suppress(TimeoutError):
                    assert client.recv(1) == b""
                    return
                client.sendall(b"y")
            pytest.fail("the connection is still open")


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        pytest.param("/jobs/x/events?after=" + "0" * 10_000, (), id="long path"),
        pytest.param("/jobs/x/events", [f"X-{number}: 1" for number in range(200)], id="many headers"),
        pytest.param("/jobs/x/events", ["X: " + "y" * 10_000], id="long header"),
    ],
)
def test_a_websocket_with_too_large_a_head_is_answered_and_closed(
    served: Served, path: str, lines: Sequence[str]
) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    with connected(served) as client:
        client.sendall(head(served, f"GET {path}", *upgrade, "Sec-WebSocket-Key: " + "A" * 22 + "==", *lines))
        assert read_all(client).startswith(b"HTTP/1.1 400 ")


def test_a_websocket_that_is_refused_and_requests_that_break_off_are_no_errors_in_the_log(
    tmp_path: Path, key_file: Path
) -> None:
    log = tmp_path / "log"
    with new_home() as home, serving(tmp_path, LOG=str(log), KERNELBOX_HOME=str(home)) as served:
        with connected(served) as client:
            client.sendall(head(served, "PUT /files/f", "Content-Length: 100") + b"x")
            while not list(tmp_path.glob(".f*")):
                pass
        while list(tmp_path.glob(".f*")):
            pass
        with connected(served) as client:
            client.sendall(head(served, "GET /kernels"))  # who has gone can no longer be told to be the user
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
            about = ("Content-Type: application/json", "Content-Length: 100")
            client.sendall(head(served, "POST /sessions/broken/execute", *about) + b'{"code": "1"}')
        while "/sessions/broken/execute" not in log.read_text():
            pass
        assert served.http.get("/kernels/broken").status_code == 404
        for path in ("/nowhere", "/api/kernels/none/channels"):
            with pytest.raises(InvalidStatus):
                connect(f"{served.url.replace('http:', 'ws:')}{path}", open_timeout=DEADLINE, proxy=None)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["level"] for line in lines} == {"INFO"}
    assert [(line["path"], line["status"]) for line in lines if line["message"] == "request"] == [
        ("/files/f", 499),
        ("/kernels", 200),
        ("/sessions/broken/execute", 499),
        ("/kernels/broken", 404),
        ("/nowhere", 404),
        ("/api/kernels/none/channels", 404),
    ]


def test_no_command_for_a_terminal_gets_into_the_log(tmp_path: Path, key_file: Path) -> None:
    log = tmp_path / "log"
    with new_home() as home, serving(tmp_path, LOG=str(log), KERNELBOX_HOME=str(home)) as served:
        served.http.get("/kernels/%1b]0;x%07%c2%9b31m%e2%80%ae")
    first, *_ = log.read_text().splitlines()
    assert first.isascii()
    assert first.isprintable()
    assert json.loads(first)["path"] == "/kernels/\x1b]0;x\x07\x9b31m\u202e"


def test_a_uvicorn_without_a_method_that_we_limit_is_refused() -> None:
    class Older:
        def data_received(self) -> None: ...

    class Limited(Older):
        def data_received(self) -> None: ...

        def keepalive_timeout(self) -> None: ...

    require_overridden(BoundedProtocol, BoundedWebSocket)
    with pytest.raises(StartFailed, match=r"^uvicorn \S+ does not have keepalive_timeout; choose a version"):
        require_overridden(Limited)
