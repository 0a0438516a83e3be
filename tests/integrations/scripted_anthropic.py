"""A server with the part of Anthropic's API that Claude Code needs, and a script in place of the model."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CELLS = ("x = 41", "x + 1")


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serves until the block ends; yields the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_HEAD(self) -> None:
        self._reply("", "text/plain")

    do_GET = do_HEAD

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "count_tokens" in self.path:
            self._reply(json.dumps({"input_tokens": 1}), "application/json")
            return
        block, reason = _answer(asked)
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "usage": usage}
        if asked.get("stream"):
            self._reply("".join(_events(message, block, reason)), "text/event-stream")
        else:
            self._reply(json.dumps({**message, "content": [block], "stop_reason": reason}), "application/json")

    def _reply(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def _answer(asked: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the next call of our tool; once all cells have run, whether the last one showed 42."""
    parts = [part for each in asked["messages"] if isinstance(each["content"], list) for part in each["content"]]
    results = [part for part in parts if part["type"] == "tool_result"]
    names = [tool["name"] for tool in asked.get("tools", ()) if tool["name"].endswith("execute_ipython_cell")]
    if names and len(results) < len(CELLS):
        number = len(results)
        return {
            "type": "tool_use",
            "id": f"toolu_{number}",
            "name": names[0],
            "input": {"code": CELLS[number]},
        }, "tool_use"
    said = "It is 42." if results and "42" in json.dumps(results[-1]["content"]) else "I have no such tool."
    return {"type": "text", "text": said}, "end_turn"


def _events(message: dict[str, Any], block: dict[str, Any], reason: str) -> Iterator[str]:
    """Yields an answer as the events of a stream."""
    if block["type"] == "text":
        begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        begun, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    for name, content in (
        ("message_start", {"message": {**message, "content": [], "stop_reason": None}}),
        ("content_block_start", {"index": 0, "content_block": begun}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}}),
        ("message_stop", {}),
    ):
        yield f"event: {name}\ndata: {json.dumps({'type': name, **content})}\n\n"
