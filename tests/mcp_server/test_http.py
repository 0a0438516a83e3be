"""HTTP: who may call the server at all, and what it says to the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send
from tests.support.mcp_server import DEADLINE, Served, command, http_client, run, serving, text

from kernelbox import InvalidInput, StartFailed
from kernelbox.server.http._binding import Binding, parse_binding
from kernelbox.server.http._listening import listen
from kernelbox.server.http._request_limits import BodyLimited, read_body

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def post(served: Served, **headers: str) -> httpx2.Response:
    """Sends the first message of a client, with headers of its own."""
    usual = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {served.token}"}
    return httpx2.post(served.url, json=HELLO, headers=httpx2.Headers(usual | headers, "latin-1"), timeout=60)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_request_with_the_token_is_answered(served: Served, scheme: str) -> None:
    assert post(served, Authorization=f"{scheme} {served.token}").status_code == 200


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x", "Bearer é"]
)
def test_a_request_without_the_token_is_refused(served: Served, given: str) -> None:
    answer = post(served, Authorization=given.format(token=served.token))
    assert answer.status_code == 401
    assert "Authorization: Bearer" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/", "/mcp", "/docs", "/mcp/../health"])
def test_no_path_is_answered_without_the_token(served: Served, path: str) -> None:
    address = served.url.removesuffix("/mcp") + path
    assert httpx2.get(address, timeout=60).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_a_request_for_another_host_is_refused(served: Served, host: str) -> None:
    assert post(served, Host=host).status_code == 421


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1.evil.example"])
def test_a_request_from_a_web_page_is_refused(served: Served, origin: str) -> None:
    assert post(served, Origin=origin).status_code == 403


@pytest.mark.parametrize("announced", [True, False])
def test_a_message_that_is_too_large_is_refused(served: Served, announced: bool) -> None:
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    piece = b" " * 1_000_000
    content = piece * 5 if announced else (piece for _ in range(5))
    answer = httpx2.post(served.url, content=content, headers=headers, timeout=60)
    assert answer.status_code == 413
    assert answer.json() == {"detail": "the request has more than 4,194,304 bytes", "code": "too_large"}


def test_a_message_that_would_fill_the_memory_is_not_read(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    answer = httpx2.post(served.url, content=b"[" + b"[]," * 1_100_000 + b"0]", headers=headers, timeout=60)
    assert answer.json() == {"detail": "the request has more than 200,000 values", "code": "too_large"}


def test_a_message_that_does_not_come_is_given_up() -> None:
    parts: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Message:
        if not parts:
            await asyncio.Event().wait()
        return parts.pop()

    async def send(message: Message) -> None:
        raise AssertionError("it was answered")

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)

    scope: Scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": []}
    limited = BodyLimited(reads, most=100, most_below={}, patience=0.05)
    with pytest.raises(HTTPException, match="comes too slowly") as told:
        asyncio.run(limited(scope, receive, send))
    assert told.value.status_code == 408


def exchange(
    served: Served, method: str, headers: dict[str, str], body: bytes = b"", *, size: int | None = None
) -> bytes:
    """Sends bytes as a request, half of one if it says that it is larger, and returns the answer as far as it came."""
    address = served.url.removeprefix("http://").removesuffix("/mcp")
    usual = {
        "Host": address,
        "Authorization": f"Bearer {served.token}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body) if size is None else size),
        "Connection": "close",
    }
    head = [f"{method} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in (usual | headers).items())]
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
        return connection.makefile("rb").readline() if size is None else b""


def test_a_session_is_found_by_its_id_and_the_token_alone(served: Served) -> None:
    known, guessed = ({"Mcp-Session-Id": each} for each in (post(served).headers["Mcp-Session-Id"], "0" * 32))
    stranger = Served(served.url, "another-token-of-somebody", served.workspace, served.process)
    for method in ("POST", "GET", "DELETE"):
        assert b" 401 " in exchange(stranger, method, known, json.dumps(HELLO).encode())
        assert b" 404 " in exchange(served, method, guessed, json.dumps(HELLO).encode())
    ping = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "ping"}).encode()
    assert b" 200 " in exchange(served, "POST", known, ping)
    assert b" 200 " in exchange(served, "DELETE", known)
    assert b" 404 " in exchange(served, "POST", known, ping)


def test_requests_that_are_broken_leave_no_word_in_the_log(tmp_path: Path, own_home: Path) -> None:
    newer = {"MCP-Protocol-Version": "2026-07-28"}
    with logged(tmp_path) as (served, log):
        session = {"Mcp-Session-Id": post(served).headers["Mcp-Session-Id"]}
        for headers in (session, newer):
            exchange(served, "POST", headers, b'{"jsonrpc":', size=500)
            for body in (b"hello", b"[" * 100, b"{}", b"\xff\xfe", b""):
                assert b" 400 " in exchange(served, "POST", headers, body), body[:10]
            assert b" 422 " in exchange(served, "POST", headers, b"[" * 100_000)
        assert b" 200 " in exchange(served, "GET", session | {"Last-Event-ID": "5"})
        assert b" 405 " in exchange(served, "PUT", {})
        unknown = {"MCP-Protocol-Version": "1999-01-01"}
        assert b" 400 " in exchange(served, "POST", unknown, json.dumps(HELLO).encode())
        assert b" 400 " in exchange(served, "POST", {"Content-Length": "-5", "Authorization": ""})
        assert b" 401 " in exchange(
            served, "GET", {"Upgrade": "websocket", "Connection": "Upgrade", "Authorization": ""}
        )
    assert log() == (0, "")


def test_clients_that_do_not_read_their_answers_keep_no_other_client_and_no_end_waiting(
    tmp_path: Path, own_home: Path
) -> None:
    arguments = {"code": "print('x' * 1_000_000)", "max_output_chars": 10_000_000}
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "execute_ipython_cell", "arguments": arguments, "_meta": envelope}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    with logged(tmp_path) as (served, log), contextlib.ExitStack() as connections:
        address = served.url.removeprefix("http://").removesuffix("/mcp")
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: {address}",
            f"Authorization: Bearer {served.token}",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            "Mcp-Name: execute_ipython_cell",
            f"Content-Length: {len(call)}",
        ]
        host, _, port = address.partition(":")
        for _ in range(5):
            connection = connections.enter_context(socket.create_connection((host, int(port)), timeout=60))
            connection.sendall("\r\n".join([*head, "", call]).encode())
            assert connection.recv(12) == b"HTTP/1.1 200"

        async def scenario() -> None:
            async with http_client(served) as client:
                assert await text(client, "execute_ipython_cell", code="1 + 1") == "2"

        run(scenario)
        served.process.terminate()
        assert log() == (0, "")


@contextlib.contextmanager
def logged(workspace: Path) -> Iterator[tuple[Served, Callable[[], tuple[int, str]]]]:
    """Starts a server; with it comes a function that returns how it ended and what it said on stderr."""
    server = subprocess.Popen(
        command(workspace, "--http", "127.0.0.1:0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ended: list[tuple[int, str]] = []

    def end() -> tuple[int, str]:
        if not ended:
            said = server.communicate(timeout=DEADLINE)[1]
            ended.append((server.returncode, said))
        return ended[0]

    with server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        try:
            yield Served(told["url"], told["token"], workspace, server), end
        finally:
            server.terminate()
            end()


def test_blanks_around_the_value_of_a_header_are_no_part_of_it(served: Served) -> None:
    body = json.dumps(HELLO)
    address = served.url.removeprefix("http://").removesuffix("/mcp")
    head = [
        "POST /mcp HTTP/1.1",
        f"Host: {address}",
        f"Authorization:\t  Bearer {served.token} \t ",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall("\r\n".join([*head, "", body]).encode())
        assert connection.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"


def test_a_server_that_is_ended_while_clients_listen_says_nothing_and_succeeds(tmp_path: Path, own_home: Path) -> None:
    with logged(tmp_path) as (served, log):
        session = post(served).headers["Mcp-Session-Id"]
        headers = {"Authorization": f"Bearer {served.token}", "Accept": "text/event-stream", "Mcp-Session-Id": session}
        with httpx2.stream("GET", served.url, headers=headers, timeout=60) as events:
            assert events.status_code == 200
            served.process.terminate()
            assert events.read() == b""
    assert log() == (0, "")


def test_the_token_can_be_given_and_is_not_printed(tmp_path: Path, own_home: Path) -> None:
    with serving(tmp_path, KERNELBOX_MCP_TOKEN="chosen-by-the-user") as server:
        assert server.token == ""
        known = Served(server.url, "chosen-by-the-user", server.workspace, server.process)
        assert post(known).status_code == 200

        async def scenario() -> None:
            async with http_client(known) as client:
                code = "import os; os.environ.get('KERNELBOX_MCP_TOKEN')"
                assert await text(client, "execute_ipython_cell", code=code) == "[variables: added os]"

        run(scenario)


def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(StartFailed, match="cannot listen at"):
            listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(
    ("given", "binding"),
    [
        ("127.0.0.1:80", Binding("127.0.0.1", 80)),
        ("localhost:0", Binding("localhost", 0)),
        ("[::1]:5", Binding("::1", 5)),
    ],
)
def test_an_address_is_a_host_and_a_port(given: str, binding: Binding) -> None:
    assert parse_binding(given) == binding
    assert str(binding) == f"http://{given}"


def test_an_address_can_be_a_unix_socket() -> None:
    assert parse_binding("unix:/run/mcp") == Binding("", 0, "/run/mcp")
    assert str(parse_binding("unix:/run/mcp")) == "unix:/run/mcp"


@pytest.mark.parametrize(
    "given", ["", "80", ":80", "host", "host:", "host:x", "host:70000", "::1:80", "host:-1", "host:²", "unix:"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        parse_binding(given)
