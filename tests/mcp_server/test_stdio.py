"""Clients over stdio that break the protocol, ask for too much, or read nothing: they are told, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import eventually, wait_for_end
from tests.support.mcp_server import DEADLINE, begin_call, command, send

from kernelbox import list_kernels

from .test_life import ENDLESS

PING = {"jsonrpc": "2.0", "method": "ping"}


class Raw:
    """A server, and a client that can send anything."""

    def __init__(self, workspace: Path, **env: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command(workspace), stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **env}
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def send(self, *messages: dict[str, Any]) -> None:
        send(self.stdin, *messages)

    def send_bytes(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def read(self) -> dict[str, Any]:
        """Returns the next message."""
        message: dict[str, Any] = json.loads(self.stdout.readline())
        return message

    def is_served(self, number: int = 99) -> bool:
        self.send({**PING, "id": number})
        return self.read() == {"jsonrpc": "2.0", "id": number, "result": {}}

    def end(self) -> tuple[int, str]:
        """Says that no more will come; returns how the server ended, and what it said on stderr."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode()
        return self.process.wait(DEADLINE), said

    @property
    def most_memory(self) -> int:
        """The most kilobytes that the server has taken so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])


@pytest.fixture
def raw(tmp_path: Path, own_home: Path) -> Iterator[Raw]:
    with connected(tmp_path) as server:
        yield server


@contextlib.contextmanager
def connected(workspace: Path, **env: str) -> Iterator[Raw]:
    """Starts a server that a client has greeted."""
    server = Raw(workspace, **env)
    with server.process:
        try:
            server.send(*begin_call("reset")[:2])
            assert server.read()["result"]["serverInfo"]["name"] == "kernelbox"
            yield server
        finally:
            server.process.kill()


WRONG_LINES: list[tuple[bytes, object, int, str]] = [
    (b"hello", None, -32700, "not JSON"),
    (b'{"jsonrpc": "2.0", "id": 7, "meth', None, -32700, "not JSON"),
    (b"\xff\xfe\x00\x80", None, -32700, "not JSON"),
    (b"[" * 100_000, None, -32700, "not JSON"),
    (b"[" + b"[]," * 1_100_000 + b"0]", None, -32600, "too many values"),
    (b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]', None, -32600, "one message per line"),
    (b"{}", None, -32600, "JSON-RPC 2.0"),
    (b'{"id": 7, "method": "ping"}', 7, -32600, "JSON-RPC 2.0"),
    (b'{"jsonrpc": "1.0", "id": "a", "method": "ping"}', "a", -32600, "JSON-RPC 2.0"),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', None, -32600, "JSON-RPC 2.0"),
    (b'{"jsonrpc": "2.0", "id": true, "method": 5}', None, -32600, "JSON-RPC 2.0"),
]


def test_a_line_that_is_no_message_is_answered_with_what_is_wrong_with_it(raw: Raw) -> None:
    for line, number, code, said in WRONG_LINES:
        raw.send_bytes(b"\n  \r\n" + line + b"\n")
        answer = raw.read()
        assert (answer["id"], answer["error"]["code"]) == (number, code), line[:100]
        assert said in answer["error"]["message"]
        assert raw.is_served()
    assert raw.end() == (0, "")


@pytest.mark.slow
def test_a_line_without_end_is_refused_and_takes_no_memory(raw: Raw) -> None:
    before = raw.most_memory
    for _ in range(200):
        raw.send_bytes(b"x" * 1_000_000)
    raw.send_bytes(b"\n")
    answer = raw.read()
    assert answer["error"]["message"] == "the message has more than 4,194,304 bytes"
    assert raw.is_served()
    assert raw.most_memory - before < 50_000


@pytest.mark.slow
def test_half_a_message_at_the_end_is_the_end(raw: Raw) -> None:
    raw.send_bytes(json.dumps({**PING, "id": 5}).encode()[:-5])
    assert raw.end() == (0, "")


def test_an_id_that_is_under_way_is_not_taken_twice(raw: Raw, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    call = begin_call("execute_ipython_cell", code=ENDLESS.format(mark=str(mark)), timeout=3600)[2]
    raw.send(call)
    eventually(lambda: mark.exists() and mark.read_text())
    for same in (2, "2"):
        raw.send({**PING, "id": same})
        answer = raw.read()
        assert answer["id"] is None
        assert answer["error"]["message"] == "a request with the id 2 is under way"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    ids: tuple[object, ...] = (2, 2, 77, "x", None, {})  # twice, unknown, and what is no id
    for number in ids:
        raw.send({**cancel, "params": {"requestId": number}})
    assert raw.is_served(77)
    eventually(lambda: raw.is_served(2))
    raw.send({**begin_call("execute_ipython_cell", code="'free'")[2], "id": 3})
    assert "'free'" in raw.read()["result"]["content"][0]["text"]
    assert "dropped" in raw.end()[1]


@pytest.mark.slow
def test_requests_of_a_client_that_reads_nothing_wait_in_its_own_pipe(raw: Raw) -> None:
    before, sent, most = raw.most_memory, 0, 200_000
    os.set_blocking(raw.stdin.fileno(), False)
    while sent < most and (sent < 2_000 or select.select([], [raw.stdin], [], 0.5)[1]):
        line = json.dumps({**PING, "id": 1000 + sent}).encode() + b"\n"
        with contextlib.suppress(BlockingIOError):
            assert os.write(raw.stdin.fileno(), line) == len(line)
            sent += 1
    assert sent < most
    assert raw.most_memory - before < 50_000
    answers = [raw.read() for _ in range(sent)]
    assert {answer["id"] for answer in answers} == set(range(1000, 1000 + sent))
    refusals = [answer["error"]["message"] for answer in answers if "error" in answer]
    assert all("are under way; wait for answers" in sentence for sentence in refusals)


@pytest.mark.slow
def test_a_thousand_calls_at_once_are_run_or_refused_and_end_with_their_client(raw: Raw, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    call = begin_call("execute_ipython_cell", code=ENDLESS.format(mark=str(mark)), timeout=3600)[2]
    raw.send(call)
    eventually(lambda: mark.exists() and mark.read_text())
    call = begin_call("execute_ipython_cell", code="1")[2]
    raw.send(*({**call, "id": 1000 + number} for number in range(999)))
    refused = [raw.read() for _ in range(800)]
    said = {answer["result"]["content"][0]["text"] for answer in refused}
    assert said == {"200 cells run or wait already; wait for some, or cancel them"}
    assert raw.end()[0] == 0
    wait_for_end(int(mark.read_text()))
    assert list_kernels() == []


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stdout is closed", "SIGTERM"])
def test_a_client_that_does_not_read_keeps_nothing_alive(tmp_path: Path, own_home: Path, end: str) -> None:
    mark = tmp_path / "mark"
    with connected(tmp_path) as raw:
        call = begin_call("execute_ipython_cell", code=ENDLESS.format(mark=str(mark)), timeout=3600)[2]
        raw.send(call)
        eventually(lambda: mark.exists() and mark.read_text())
        listing = {"jsonrpc": "2.0", "method": "tools/list"}
        raw.send(*({**listing, "id": 1000 + number} for number in range(100)))  # more than the pipe takes
        if end == "SIGTERM":
            raw.process.send_signal(signal.SIGTERM)
        else:
            raw.stdout.close()
        assert raw.process.wait(DEADLINE) == 0
        wait_for_end(int(mark.read_text()))
        assert list_kernels() == []
        assert list(own_home.glob("runtime/template-*")) == []


@pytest.mark.slow
def test_a_version_that_nobody_speaks_is_answered_with_those_that_we_do(tmp_path: Path, own_home: Path) -> None:
    hello = begin_call("reset")[0]
    hello["params"]["protocolVersion"] = "1999-01-01"
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    newer = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope}}
    answers = []
    for first in (hello, newer):
        raw = Raw(tmp_path)
        with raw.process:
            raw.send(first)
            answers.append(raw.read())
            assert raw.end() == (0, "")
    assert answers[0]["result"]["protocolVersion"] == "2025-11-25"
    assert "2026-07-28" in answers[1]["error"]["data"]["supported"]
