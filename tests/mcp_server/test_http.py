"""HTTP: who may call the server at all, and what it says to the others."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest

from kernelbox import InvalidInput, StartFailed
from kernelbox.mcp._address import Address, parse_address
from kernelbox.mcp._http import _listen, serve_http
from kernelbox.mcp._options import ServerOptions

from .support import DEADLINE, Served, command, http_client, run, serving, text

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


def test_a_request_with_the_token_is_answered(served: Served) -> None:
    assert post(served).status_code == 200


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x", "Bearer é"]
)
def test_a_request_without_the_token_is_refused(served: Served, given: str) -> None:
    answer = post(served, Authorization=given.format(token=served.token))
    assert answer.status_code == 401
    assert "Authorization: Bearer" in answer.json()["error"]


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


def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token}", "Content-Type": "application/json"}
    assert httpx2.post(served.url, content=b" " * 5_000_000, headers=headers, timeout=60).status_code == 413


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
    server = subprocess.Popen(
        command(tmp_path, "--http", "127.0.0.1:0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        served = Served(told["url"], told["token"], tmp_path, server)
        session = post(served).headers["Mcp-Session-Id"]
        headers = {"Authorization": f"Bearer {served.token}", "Accept": "text/event-stream", "Mcp-Session-Id": session}
        with httpx2.stream("GET", served.url, headers=headers, timeout=60) as events:
            assert events.status_code == 200
            server.terminate()
            assert events.read() == b""
        _, said = server.communicate(timeout=DEADLINE)
    assert (server.returncode, said) == (0, "")


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


@pytest.mark.parametrize("token", ["short", "with a blank in the middle", "with-the-letter-é", "a-line-of-its-own\n"])
def test_a_token_that_can_be_guessed_or_not_sent_is_refused(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_MCP_TOKEN", token)
    with pytest.raises(InvalidInput, match="a token needs 16 or more"):
        serve_http(ServerOptions(workspace=str(tmp_path)), Address("127.0.0.1", 0))


def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(StartFailed, match="cannot listen at"):
            _listen(Address("127.0.0.1", taken.getsockname()[1]))


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("127.0.0.1:80", Address("127.0.0.1", 80)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:5", Address("::1", 5)),
    ],
)
def test_an_address_is_a_host_and_a_port(given: str, address: Address) -> None:
    assert parse_address(given) == address
    assert str(address) == given


@pytest.mark.parametrize(
    "given", ["", "80", ":80", "host", "host:", "host:x", "host:70000", "::1:80", "host:-1", "host:²"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        parse_address(given)
