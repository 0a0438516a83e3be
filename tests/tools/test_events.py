"""Servers of the older kind, whose messages come as one stream of events, that misbehave."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.executor import run
from tests.support.tools import executing, failure, generate

from kernelbox import ToolServerFailed

CALL = "from mcptools.remote import call\nprint(call.run(call.Params()))"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("refuses", "it answered with HTTP 500"),
        ("redirects", "it leads to http://localhost"),
        ("garbles", "its answer cannot be read: it is not valid"),
        ("ends", "it closed the connection"),
    ],
)
def test_a_call_that_goes_wrong_fails_with_a_sentence_and_the_next_one_works(
    home: Path, tmp_path: Path, fault: str, told: str
) -> None:
    async def scenario(events: Events) -> tuple[str, str | None]:
        async with executing(tmp_path) as executor:
            failed = await failure(executor, CALL)
            events.fault = ""
            return failed, (await executor.execute(CALL)).text

    with serving() as events:
        generate(tmp_path, events.parameters, "remote")
        events.fault = fault
        failed, after = run(lambda: scenario(events))
    assert told in failed
    assert after == "called"


@pytest.mark.parametrize("fault", ["sends away", "posts elsewhere"])
def test_a_server_that_leads_to_another_gets_no_secret_there(home: Path, tmp_path: Path, fault: str) -> None:
    with serving() as other, serving(fault, other.port) as events:
        with pytest.raises(
            ToolServerFailed, match=rf"it leads to http://localhost:{other.port}/.*, which is not followed"
        ):
            generate(tmp_path, events.parameters, "remote")
        assert other.seen == []
        assert "s3cret" in events.seen


@pytest.mark.parametrize(
    ("fault", "told"), [("is silent", "where messages are to be posted"), ("is absent", "HTTP 404")]
)
def test_a_server_that_is_none_is_told(home: Path, tmp_path: Path, fault: str, told: str) -> None:
    with serving(fault) as events, pytest.raises(ToolServerFailed, match=told):
        generate(tmp_path, events.parameters, "remote")


class Events(ThreadingHTTPServer):
    """A server with one tool, `call`; what is wrong with it can be changed."""

    daemon_threads = True

    def __init__(self, fault: str, other: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault = fault
        self.other = other
        self.port = self.server_address[1]
        self.seen: list[str | None] = []
        self.streams: list[queue.Queue[bytes]] = []

    @property
    def parameters(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self.port}/sse", "headers": {"X-Token": "s3cret"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Events

    def do_GET(self) -> None:
        self.server.seen.append(self.headers["X-Token"])
        match self.server.fault:
            case "sends away":
                self._answer(307, {"Location": f"http://localhost:{self.server.other}/sse"})
            case "is absent":
                self._answer(404)
            case _:
                self._follow()

    def do_POST(self) -> None:
        self.server.seen.append(self.headers["X-Token"])
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        match self.server.fault if message.get("method") == "tools/call" else "":
            case "refuses":
                self._answer(500)
            case "redirects":
                self._answer(307, {"Location": f"http://localhost:{self.server.port}/post"})
            case "garbles":
                self._answer(202)
                self._say(b'{"id": %d, "result": [' % message["id"])
            case "ends":
                self._answer(202)
                self._say(b"")
            case _:
                self._answer(202)
                self._respond(message)

    def _follow(self) -> None:
        """Sends events until one of them is empty."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        stream: queue.Queue[bytes] = queue.Queue()
        self.server.streams.append(stream)
        host = f"http://localhost:{self.server.other}" if self.server.fault == "posts elsewhere" else ""
        if self.server.fault == "is silent":
            return
        self.wfile.write(f"event: endpoint\ndata: {host}/post\n\n".encode())
        while body := stream.get():
            self.wfile.write(b"event: message\ndata: " + body + b"\n\n")

    def _respond(self, message: dict[str, Any]) -> None:
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2024-11-05",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "remote", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "call", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "called"}]},
        }
        if "id" in message:
            result = results.get(message["method"])
            outcome = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
            self._say(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode())

    def _say(self, body: bytes) -> None:
        self.server.streams[-1].put(body)

    def _answer(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@contextlib.contextmanager
def serving(fault: str = "", other: int = 0) -> Iterator[Events]:
    """Runs a server in this process."""
    events = Events(fault, other)
    thread = threading.Thread(target=events.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield events
    finally:
        for stream in events.streams:
            stream.put(b"")
        events.shutdown()
        thread.join()
        events.server_close()
