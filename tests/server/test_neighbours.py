"""Other accounts of the machine can connect over loopback, and over a Unix socket that lets them, and get nothing."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import httpx2
import psutil
import pytest
from tests.support.cells import eventually
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, serving
from websockets.sync.client import unix_connect

from kernelbox.server.http._connection_owner import _is_tcp_peer_user, find_owner

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can act as another account")

NOBODY = 65534
SECRET = "a-secret-of-the-tests"

# Sends what it is given, as another account, and shows what comes back.
SEND = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
address = sys.argv[1] if len(sys.argv) == 2 else (sys.argv[1], int(sys.argv[2]))
client = socket.socket(socket.AF_UNIX if len(sys.argv) == 2 else socket.AF_INET)
client.settimeout(100)
client.connect(address)
client.sendall(sys.stdin.buffer.read())
while piece := client.recv(65536):
    sys.stdout.buffer.write(piece)
"""


def send_as_another(url: str, request: str) -> str:
    if url.startswith("unix:"):
        where = [url.removeprefix("unix:")]
    else:
        where = url.removeprefix("http://").strip("/").rsplit(":", 1)
    command = [sys.executable, "-I", "-c", SEND, *where]
    done = subprocess.run(command, input=request.encode(), capture_output=True, timeout=DEADLINE, check=True)
    return done.stdout.decode()


def request(line: str, *headers: str, body: str = "") -> str:
    lines = [f"{line} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", body])


@pytest.mark.parametrize("line", ["GET /kernels", "POST /sessions/theirs/execute", "GET /api/kernels", "GET /metrics"])
def test_a_request_of_another_account_is_refused_and_the_users_own_is_answered(served: Served, line: str) -> None:
    said = send_as_another(served.url, request(line, "Content-Type: application/json", body='{"code": "1"}'))
    assert said.startswith("HTTP/1.1 401")
    assert "not made by a process of the user who runs the server" in said
    assert served.http.get("/kernels").status_code == 200
    assert served.http.get("/kernels/theirs").status_code == 404


UPGRADE = request(
    "GET /kernels/none/stream",
    *("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
).replace("Connection: close", "Connection: Upgrade")


def test_another_account_gets_no_websocket(served: Served) -> None:
    assert send_as_another(served.url, UPGRADE).startswith(("HTTP/1.1 401", "HTTP/1.1 403"))


@pytest.mark.slow
def test_another_account_gets_nothing_over_a_unix_socket_that_was_opened_to_it(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home:
        path = home.with_suffix(".sock")
        with serving(tmp_path, "--uds", str(path), KERNELBOX_HOME=str(home)) as server:
            path.chmod(0o666)
            assert send_as_another(server.url, request("GET /kernels")).startswith("HTTP/1.1 401")
            assert send_as_another(server.url, UPGRADE).startswith(("HTTP/1.1 401", "HTTP/1.1 403"))
            with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), base_url="http://any") as client:
                assert client.get("/kernels").json() == {"kernels": []}
            with unix_connect(str(path), uri="ws://any/kernels/none/stream") as channel:
                assert channel.response is not None
                assert channel.response.status_code == 101


def test_over_a_unix_socket_of_another_program_every_account_needs_a_token(tmp_path: Path, key_file: Path) -> None:
    with new_home() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(home))
        path = home.with_suffix(".sock")
        command = [sys.executable, "-m", "uvicorn", "kernelbox.server.app:app", "--uds", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
            assert process.stderr is not None
            next(line for line in process.stderr if "running on" in line)
            said = send_as_another(f"unix:{path}", request("GET /kernels"))
            assert said.startswith("HTTP/1.1 401"), said
            assert "not made by a process of the user who runs the server" in said
            process.terminate()
            process.stderr.read()
        path.unlink(missing_ok=True)  # uvicorn leaves it; Python removes it from 3.13 on


def test_what_tells_nothing_is_shown_to_every_account(served: Served) -> None:
    assert send_as_another(served.url, request("GET /health")).startswith("HTTP/1.1 200")


@pytest.mark.slow
def test_another_account_is_served_at_loopback_when_it_has_a_token(tmp_path: Path, key_file: Path) -> None:
    with (
        new_home() as home,
        serving(tmp_path, KERNELBOX_HOME=str(home), KERNELBOX_TOKEN=SECRET) as server,
    ):
        assert send_as_another(server.url, request("GET /kernels")).startswith("HTTP/1.1 401")
        said = send_as_another(server.url, request("GET /kernels", f"Authorization: Bearer {SECRET}"))
        assert said.startswith("HTTP/1.1 200")


@contextlib.contextmanager
def under_uvicorn(workspace: Path) -> Iterator[str]:
    """Serves the application by uvicorn's own classes; yields the address."""
    with new_home() as home, pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listener:
        patch.setenv("KERNELBOX_HOME", str(home))
        number = listener.fileno()
        command = [sys.executable, "-m", "uvicorn", "kernelbox.server.app:app", "--fd", str(number)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=workspace, pass_fds=[number]) as process:
            assert process.stderr is not None
            try:
                next(line for line in process.stderr if "running on" in line)
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                process.terminate()
                process.stderr.read()


@pytest.mark.slow
def test_an_address_that_a_request_claims_to_come_from_counts_for_nothing(tmp_path: Path, key_file: Path) -> None:
    with under_uvicorn(tmp_path) as url, httpx2.Client(base_url=url, timeout=DEADLINE, trust_env=False) as client:
        with client.stream("GET", "/kernels") as answer:  # the user's own connection, whose port others can see
            assert answer.status_code == 200
            port = answer.extensions["network_stream"].get_extra_info("client_addr")[1]
            for claimed in (f"127.0.0.1:{port}", "127.0.0.1", "127.0.0.1:1", "10.0.0.1", "unknown"):
                said = send_as_another(url, request("GET /kernels", f"X-Forwarded-For: {claimed}"))
                assert said.startswith("HTTP/1.1 401"), said
        assert client.get("/kernels", headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 200


# Connects as another account; when it is told to, sends what it is given, resets the connection, and leaves its port.
RESET = """
import os, socket, struct, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
client = socket.socket()
client.bind(("127.0.0.77", 0))  # where no other process of the machine takes the port
client.connect((sys.argv[1], int(sys.argv[2])))
print(client.getsockname()[1], flush=True)
said = sys.stdin.readline()
client.sendall(bytes.fromhex(said))
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
client.close()
print("reset", flush=True)
sys.stdin.read()
"""


def connection_from(process: psutil.Process, port: int) -> object | None:
    return next((each for each in process.net_connections("tcp") if each.raddr[1:] == (port,)), None)


def status_in_log(log: Path, path: str) -> int | None:
    said = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return next((line["status"] for line in said if line.get("path") == path), None)


def test_a_request_of_another_account_does_not_become_the_users_who_gets_its_port(
    tmp_path: Path, key_file: Path
) -> None:
    sent = request("POST /sessions/inherited/execute", "Content-Type: application/json", body='{"code": "1"}')
    log = tmp_path / "log"
    with new_home() as home, serving(tmp_path, KERNELBOX_HOME=str(home), LOG=str(log)) as served:
        host, port = served.url.removeprefix("http://").rsplit(":", 1)
        server = psutil.Process(served.process.pid)
        command = [sys.executable, "-I", "-c", RESET, host, port]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stranger:
            assert stranger.stdin is not None
            assert stranger.stdout is not None
            left = int(stranger.stdout.readline())
            eventually(lambda: connection_from(server, left))
            server.suspend()  # as a busy server is late
            try:
                stranger.stdin.write(f"{sent.encode().hex()}\n")
                stranger.stdin.flush()
                assert stranger.stdout.readline() == "reset\n"
                with socket.socket() as users:
                    users.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    users.bind(("127.0.0.77", left))
                    users.connect((host, int(port)))
                    server.resume()
                    eventually(lambda: status_in_log(log, "/sessions/inherited/execute") is not None)
            finally:
                server.resume()
        served.http.delete("/kernels")
        assert status_in_log(log, "/sessions/inherited/execute") == 401


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_owner_of_a_connection_is_known_until_it_is_closed(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as listener, socket.socket(family) as client:
        client.connect(listener.getsockname())
        here, there = listener.getsockname(), client.getsockname()
        server_end, client_end = (ip_address(host), here[1]), (ip_address(host), there[1])
        assert find_owner(client_end, server_end) == 0
        os.fchown(client.fileno(), NOBODY, -1)
        assert find_owner(client_end, server_end) == NOBODY
        client.shutdown(socket.SHUT_WR)
        assert find_owner(client_end, server_end) is None
        client.close()
        assert find_owner(client_end, server_end) is None
        assert find_owner(server_end, client_end) is None  # where one listens has no other end


def test_nothing_is_known_of_a_connection_between_other_kinds_of_addresses() -> None:
    assert find_owner((ip_address("127.0.0.1"), 1), (ip_address("::1"), 2)) is None


class AskedBefore(socket.socket):
    """The server's end of a connection, whose peer was asked for while it was still there."""

    there: tuple[str, int]

    def getpeername(self) -> tuple[str, int]:
        return self.there


def test_a_connection_that_was_reset_is_nobodys_though_the_user_has_its_port_now() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        own = ("127.0.0.77", 0)  # where no other process of the machine takes the port
        strangers = socket.create_connection(server.getsockname(), timeout=DEADLINE, source_address=own)
        ours = AskedBefore(fileno=server.accept()[0].detach())
        stack.enter_context(ours).there = strangers.getsockname()
        strangers.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        strangers.close()  # with a reset, which frees the port at once
        with pytest.raises(ConnectionResetError):
            ours.recv(1)
        users = stack.enter_context(socket.socket())
        users.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        users.bind(ours.there)
        users.connect(server.getsockname())
        again = stack.enter_context(server.accept()[0])
        assert again.getpeername() == ours.there
        assert _is_tcp_peer_user(again)
        assert not _is_tcp_peer_user(ours)
