"""Tools of MCP servers that cells of the service call: approved over each way, and what they say meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.homes import new_home
from tests.support.server import DEADLINE, Served, read_events, serving
from tests.support.tools import PLAIN, cell, generate
from websockets.sync.client import connect

# What the tool `report` of the plain server sends before it returns.
SAID = [("progress", "step 1", 1), ("progress", "step 2", 2), ("log", "a line", None)]


@pytest.fixture
def tooled(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Starts a server in whose workspace there is a package for a tool server."""
    with new_home() as home:
        monkeypatch.setenv("KERNELBOX_HOME", str(home))
        generate(tmp_path, PLAIN)
        with serving(tmp_path) as served:
            yield served
            served.http.delete("/kernels")


def check(events: list[dict[str, Any]]) -> None:
    assert [(e["kind"], e["text"], e["progress"]) for e in events if e["type"] == "tool"] == SAID
    decided = next(event for event in events if event["type"] == "decision")
    assert decided["accepted"] is True
    assert "reported" in events[-1]["result"]["output"]


@pytest.mark.slow
def test_a_tool_is_approved_by_a_request_from_elsewhere_and_its_progress_comes_as_events(tooled: Served) -> None:
    body = {"code": cell("report"), "approve": "ask"}
    seen = []
    with tooled.http.stream("POST", "/sessions/sse/stream", json=body) as answer:
        job = answer.headers["location"]
        for event in read_events(answer):
            seen.append(event)
            if event["type"] == "approval":
                assert (event["server_name"], event["tool_name"]) == ("plain", "report")
                accepted = tooled.post(f"{job}/approvals/{event['id']}", {"accept": True}, **tooled.proof)
                assert accepted.json() == {"accepted": True}
    check(seen)


@pytest.mark.slow
def test_a_tool_is_approved_over_a_websocket_and_its_progress_comes_as_events(tooled: Served) -> None:
    seen = []
    url = f"{tooled.url.replace('http:', 'ws:')}/sessions/ws/stream"
    with connect(url, open_timeout=DEADLINE, proxy=None, additional_headers=tooled.proof) as client:
        client.send(json.dumps({"code": cell("report"), "approve": "ask"}))
        for message in client:
            event = json.loads(message)
            seen.append(event)
            if event["type"] == "approval":
                client.send(json.dumps({"type": "answer", "id": event["id"], "accept": True}))
    check(seen)


@pytest.mark.slow
def test_a_tool_is_not_called_where_nobody_was_asked(tooled: Served) -> None:
    result = tooled.post("/sessions/plain/execute", {"code": cell("report")}).json()
    assert result["status"] == "error"
    assert "reject" in result["error"]["evalue"] or "asked" in result["error"]["evalue"]
    approved = tooled.post("/sessions/plain/execute", {"code": cell("report"), "approve": "all"}).json()
    assert "reported" in approved["output"]
