"""Servers at an address: what they answer over HTTP is bounded, and what they refuse is told."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.executor import run, text
from tests.support.tools import executing, failure, generate, serving

from kernelbox import ToolServerFailed
from kernelbox.tools import _http_transport

CALL = "from mcptools.remote import {0} as tool\nprint(len(tool.run(tool.Params({1}))))"


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "path"), [("http", "mcp"), ("sse", "sse")])
def test_an_answer_of_many_megabytes_arrives_as_an_event(home: Path, tmp_path: Path, transport: str, path: str) -> None:
    async def scenario() -> str | None:
        async with executing(tmp_path) as executor:
            return await text(executor, CALL.format("echo", "text='x' * 3_000_000"))

    with serving(transport, tmp_path) as port:  # the SDK's server answers with events
        generate(tmp_path, {"url": f"http://127.0.0.1:{port}/{path}"}, "remote")
        assert run(scenario) == "3000000"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (lambda: Answers(call=text_result("x" * 2_000_000)), "it has more than 1,000,000 bytes"),
        (lambda: Answers(call=text_result("x" * 2_000_000), events=True), "it has more than 1,000,000 bytes"),
        (lambda: Answers(call=text_result("x"), packed=True), "it is compressed"),
        (lambda: Answers(call=many_values()), "it has too many values"),
        (lambda: Answers(call=many_values(), events=True), "it has too many values"),
    ],
)
def test_an_answer_that_would_fill_the_memory_is_not_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Any, reason: str
) -> None:
    if "bytes" in reason:
        monkeypatch.setattr(_http_transport, "LARGEST_MESSAGE", 1_000_000)

    async def scenario() -> str:
        async with executing(tmp_path) as executor:
            return await failure(executor, CALL.format("call", ""))

    with answering(answers()) as port:
        generate(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}, "remote")
        assert reason in run(scenario)


def test_a_server_that_does_not_take_leave_is_left(home: Path, tmp_path: Path) -> None:
    async def scenario() -> str | None:
        async with executing(tmp_path) as executor:
            return await text(executor, CALL.format("call", ""))

    with answering(Answers(call=text_result("four"), silent_end=True)) as port:
        generate(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}, "remote")
        assert run(scenario) == "4"


def test_a_server_that_refuses_is_quoted(home: Path, tmp_path: Path) -> None:
    with answering(Answers(status=401)) as port:
        with pytest.raises(ToolServerFailed, match=r"it refused the request; it said: HTTP 401 Unauthorized$"):
            generate(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}, "remote")


@pytest.mark.parametrize("events", [False, True])
def test_half_of_a_character_in_an_answer_over_http_is_read_as_one(home: Path, tmp_path: Path, events: bool) -> None:
    async def scenario() -> str | None:
        async with executing(tmp_path) as executor:
            return await text(executor, CALL.format("call", ""))

    with answering(Answers(call=text_result("cut \ud83d"), events=events)) as port:
        generate(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}, "remote")
        assert run(scenario) == "5"


@pytest.mark.parametrize(
    ("body", "events"), [(b"", False), (b"[]", False), (b"[]", True), (b"notes", False), (b"notes", True)]
)
def test_an_answer_that_is_no_message_is_told_in_a_sentence(
    home: Path, tmp_path: Path, body: bytes, events: bool
) -> None:
    with answering(Answers(raw=body, events=events)) as port:
        generate(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}, "remote")
        said = run(lambda: fails(tmp_path))
    assert said == "remote.call: its answer cannot be read: it is not valid, nested too deeply, or has too many values"


def test_what_a_server_refused_before_it_answered_is_not_told_of_a_later_failure(home: Path, tmp_path: Path) -> None:
    with answering(Answers(refusals={"server/discover": 404, "tools/call": 429})) as port:
        generate(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}, "remote")
        assert run(lambda: fails(tmp_path)) == (
            "remote.call: it refused the request; it said: HTTP 429 Too Many Requests"
        )


async def fails(root: Path) -> str:
    async with executing(root) as executor:
        return await failure(executor, CALL.format("call", ""))


def text_result(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def many_values() -> dict[str, Any]:
    return {"content": [], "structuredContent": {"values": [[]] * 1_000_000}}


class Answers:
    """What a server answers with: a result of its only tool, `call`, in a form that may be unusual."""

    def __init__(
        self,
        *,
        call: dict[str, Any] | None = None,
        events: bool = False,
        packed: bool = False,
        silent_end: bool = False,
        status: int = 200,
        raw: bytes | None = None,
        refusals: dict[str, int] | None = None,
    ) -> None:
        self.call = call
        self.events = events
        self.packed = packed
        self.silent_end = silent_end
        self.status = status
        self.raw = raw
        self.refusals = refusals or {}
        self.ended = threading.Event()

    def result(self, method: str) -> object:
        match method:
            case "initialize":
                about = {"name": "remote", "version": "1"}
                return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
            case "tools/list":
                return {"tools": [{"name": "call", "inputSchema": {"type": "object", "additionalProperties": True}}]}
            case "tools/call":
                return self.call
        return None


@contextlib.contextmanager
def answering(answers: Answers) -> Iterator[int]:
    """Runs a server of the older protocol in this process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            result = answers.result(message.get("method", ""))
            status = answers.refusals.get(message.get("method", ""), answers.status)
            if status != 200 or "id" not in message:
                self._send(status if status != 200 else 202, b"")
                return
            answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
            answer |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
            unusual = message["method"] == "tools/call"
            body = json.dumps(answer).encode() if answers.raw is None or not unusual else answers.raw
            if unusual and answers.events:
                self._send(200, b"event: message\ndata: " + body + b"\n\n", "text/event-stream")
            elif unusual and answers.packed:
                self._send(200, gzip.compress(body), "application/json", "gzip")
            else:
                self._send(200, body, "application/json")

        def do_GET(self) -> None:
            self._send(405, b"")

        def do_DELETE(self) -> None:
            if answers.silent_end:
                answers.ended.wait()
            self._send(200, b"")

        def _send(self, status: int, body: bytes, kind: str = "text/plain", encoding: str = "identity") -> None:
            with contextlib.suppress(ConnectionError):  # the client may have read enough
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-encoding", encoding)
                self.send_header("content-length", str(len(body)))
                self.send_header("mcp-session-id", "one")
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        answers.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
