"""Following a cell while it runs: server-sent events and WebSockets, broken off, resumed, answered, slow."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.support.cells import eventually
from tests.support.server import DEADLINE, PICTURE, Served, events_of, read_events, serving
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

ENDLESS = "import time\nwhile True: time.sleep(0.01)"


@contextlib.contextmanager
def streaming(served: Served, key: str, code: str, **fields: Any) -> Iterator[httpx2.Response]:
    with httpx2.stream(
        "POST", f"{served.url}/kernels/{key}/stream", json={"code": code, **fields}, timeout=DEADLINE
    ) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield answer


def dial(served: Served, path: str, **options: Any) -> ClientConnection:
    url = served.url.replace("http:", "ws:")
    client: ClientConnection = connect(
        f"{url}{path}", open_timeout=DEADLINE, close_timeout=DEADLINE, proxy=None, **options
    )
    return client


def received(client: ClientConnection) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(ConnectionClosed):
        while True:
            yield json.loads(client.recv(timeout=DEADLINE))


# -- server-sent events ----------------------------------------------------------------------------------------


def test_output_arrives_while_the_cell_runs(served: Served, key: str) -> None:
    go = served.workspace / f"go-{key}"
    code = f"import os, time\nprint('first')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('last')\n5"
    with streaming(served, key, code) as answer:
        events = read_events(answer)
        assert next(event for event in events if event["type"] == "output")["text"] == "first\n"
        go.touch()
        rest = list(events)
    assert [event["type"] for event in rest] == ["output", "output", "result"]
    assert (rest[0]["text"], rest[1]["kind"], rest[-1]["result"]["return_value"]) == ("last\n", "execute_result", "5")


def test_events_are_numbered_without_a_gap(served: Served, key: str) -> None:
    with streaming(served, key, "for n in range(50): print(n, flush=True)") as answer:
        events = list(read_events(answer))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "".join(event["text"] for event in events if event["type"] == "output") == events[-1]["result"]["output"]


def test_a_stream_names_its_job_which_can_be_followed_again(served: Served, key: str) -> None:
    with streaming(served, key, "print('x')") as answer:
        events, location = list(read_events(answer)), answer.headers["location"]
    job_id = location.rpartition("/")[2]
    assert events[0]["job_id"] == job_id
    assert list(events_of(served, job_id)) == events


@pytest.mark.parametrize("after", range(4))
def test_a_stream_is_resumed_after_the_last_event_that_was_seen(served: Served, key: str, after: int) -> None:
    code = "for n in range(2):\n    display(n)"
    with streaming(served, key, code) as answer:
        events, job_id = list(read_events(answer)), answer.headers["location"].rpartition("/")[2]
    assert [event["type"] for event in events] == ["started", "output", "output", "result"]
    assert list(events_of(served, job_id, after)) == events[after:]
    assert list(events_of(served, job_id, headers={"Last-Event-ID": str(after)})) == events[after:]


def test_after_the_last_event_there_is_nothing_to_follow_and_browsers_are_told_to_stop(
    served: Served, other: Served, key: str
) -> None:
    with streaming(served, key, "1") as answer:
        events, job_id = list(read_events(answer)), answer.headers["location"].rpartition("/")[2]
    eventually(lambda: served.http.get(f"/jobs/{job_id}").json()["state"] == "done")
    for server, after in ((served, len(events)), (other, len(events)), (served, 99)):
        told = server.http.get(f"/jobs/{job_id}/events?after={after}")
        assert (told.status_code, told.content) == (204, b"")
        with dial(server, f"/jobs/{job_id}/events?after={after}") as client:
            assert list(received(client)) == []


def test_a_cell_goes_on_when_its_client_has_gone_and_is_followed_again(served: Served, key: str) -> None:
    go = served.workspace / f"go-{key}"
    code = f"import os, time\nprint('a')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('b')"
    with streaming(served, key, code) as answer:
        job_id = answer.headers["location"].rpartition("/")[2]
        seen = next(event for event in read_events(answer) if event["type"] == "output")
    go.touch()
    rest = list(events_of(served, job_id, seen["seq"]))
    assert [event.get("text") for event in rest] == ["b\n", None]
    assert rest[-1]["result"]["output"] == "a\nb\n"


def test_a_cell_is_interrupted_when_its_client_goes_if_that_is_wanted(served: Served, key: str) -> None:
    with streaming(served, key, f"x = 1\nprint('a')\n{ENDLESS}", on_disconnect="interrupt") as answer:
        job_id = answer.headers["location"].rpartition("/")[2]
        next(event for event in read_events(answer) if event["type"] == "output")
    assert list(events_of(served, job_id))[-1]["result"]["error"]["ename"] == "Cancelled"
    assert served.execute(key, "x")["return_value"] == "1"


def test_of_a_flood_the_last_megabytes_are_kept_and_what_was_dropped_is_told(served: Served, key: str) -> None:
    code = "line = 'x' * 999\nfor n in range(60_000): print(line)\nprint('the end')"
    answer = served.post(f"/kernels/{key}/jobs", {"code": code, "timeout": 100})
    job_id = answer.json()["id"]
    while served.http.get(f"/jobs/{job_id}").json()["state"] == "running":
        pass
    events = list(events_of(served, job_id))
    assert events[0]["type"] == "dropped"
    assert (events[0]["first"], events[0]["last"]) == (1, events[1]["seq"] - 1)
    assert [event["seq"] for event in events[1:]] == list(range(events[1]["seq"], events[-1]["seq"] + 1))
    kept = sum(len(event["text"]) for event in events if event["type"] == "output")
    assert 10_000_000 < kept < 20_000_000
    assert events[-2]["text"].endswith("the end\n")


def test_a_client_that_reads_nothing_does_not_hold_the_cell(served: Served, key: str) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    body = json.dumps({"code": "for n in range(20_000): print('x' * 999)", "timeout": 100}).encode()
    head = f"POST /kernels/{key}/stream HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert client.recv(1000)
        assert served.execute(key, "'free'", timeout=90)["return_value"] == "'free'"
        end = server_end(served, client.getsockname())
        held = end.readlink()
    eventually(lambda: not end.is_symlink() or end.readlink() != held)  # the server has seen that the client has gone


def server_end(served: Served, client: tuple[str, int]) -> Path:
    """Returns the descriptor that a server has of the connection of a client."""
    server = psutil.Process(served.process.pid)
    [fd] = [each.fd for each in server.net_connections() if each.raddr == client]
    return Path(f"/proc/{server.pid}/fd/{fd}")


def test_pictures_arrive_as_events_with_their_addresses(served: Served, key: str) -> None:
    code = "import base64\nfrom IPython.display import Image\n"
    code += f"Image(base64.b64decode('{PICTURE}'))"
    with streaming(served, key, code) as answer:
        shown = next(event for event in read_events(answer) if event["type"] == "output")
    assert shown["image"].startswith("/images/")
    assert "image/png" in shown["data"]


def test_a_death_ends_the_stream_with_its_cause(served: Served, key: str) -> None:
    with streaming(served, key, "print('last words')\nimport os; os._exit(7)") as answer:
        events = list(read_events(answer))
    assert events[-1]["result"]["ending"] == "died"
    assert "last words\n" in [event.get("text") for event in events]


def test_a_stream_that_cannot_begin_is_refused_as_a_request(served: Served, key: str) -> None:
    assert served.post("/kernels/nobody/stream", {"code": "1"}).status_code == 404
    assert served.post(f"/kernels/{key}/stream", {"code": 1}).status_code == 422
    assert served.post(f"/kernels/{key}/stream", {"code": "1", "on_disconnect": "?"}).status_code == 422
    assert served.http.get("/jobs/x/events?after=-1").status_code == 422


def test_a_hundred_streams_are_open_at_once(served: Served, key: str) -> None:
    job_id = served.post(f"/kernels/{key}/jobs", {"code": f"print('a')\n{ENDLESS}"}).json()["id"]
    limits = httpx2.Limits(max_connections=200)
    with httpx2.Client(base_url=served.url, timeout=DEADLINE, limits=limits) as client, contextlib.ExitStack() as stack:
        streams = [read_events(stack.enter_context(client.stream("GET", f"/jobs/{job_id}/events"))) for _ in range(100)]
        assert {next(event["text"] for event in events if event["type"] == "output") for events in streams} == {"a\n"}
        served.post(f"/jobs/{job_id}/cancel")
        assert {list(events)[-1]["type"] for events in streams} == {"result"}


# -- WebSockets ------------------------------------------------------------------------------------------------


def test_a_websocket_runs_code_and_sends_its_events(served: Served, key: str) -> None:
    with dial(served, f"/kernels/{key}/stream") as client:
        client.send(json.dumps({"code": "print('x')\n6 * 7"}))
        events = list(received(client))
        assert client.close_code == 1000
    assert [event["type"] for event in events] == ["started", "output", "output", "result"]
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    assert events[-1]["result"]["return_value"] == "42"


def test_a_request_that_comes_twice_over_websockets_runs_once(served: Served, key: str) -> None:
    once = {"Idempotency-Key": f"socket-{key}"}
    told = []
    for path in (f"/kernels/{key}/stream", f"/kernels/{key}/stream", f"/sessions/{key}/stream"):
        with dial(served, path, additional_headers=once) as client:
            client.send(json.dumps({"code": "globals().setdefault('ran', []).append(1); len(ran)"}))
            told.append(list(received(client)))
    assert told[0][-1]["result"]["return_value"] == "1"
    assert told[0] == told[1]
    assert [event["code"] for event in told[2]] == ["idempotency_key_reused"]  # another path is another request
    with dial(served, f"/kernels/{key}/stream", additional_headers={"Idempotency-Key": "a b"}) as client:
        client.send(json.dumps({"code": "1"}))
        assert [event["code"] for event in received(client)] == ["invalid_request"]


def test_each_attempt_of_a_retry_is_told_to_have_started(served: Served, key: str) -> None:
    body = {"code": "print(1); a", "replacement_codes": ["print(2); b", "3"]}
    once = {"Idempotency-Key": f"attempts-{key}"}
    job_id = served.post(f"/kernels/{key}/execute/retry", body, **once).headers["location"].rpartition("/")[2]
    events = list(events_of(served, job_id))
    assert [event["type"] for event in events if event["type"] != "output"] == ["started"] * 3 + ["result"]
    assert len({event["execution_id"] for event in events if event["type"] == "started"}) == 3


@pytest.mark.slow
def test_a_client_that_does_not_say_what_to_run_is_not_waited_for(served: Served, key: str) -> None:
    with dial(served, f"/kernels/{key}/stream") as client:
        assert [event["code"] for event in received(client)] == ["too_slow"]


def test_a_websocket_in_a_session_opens_its_kernel(served: Served) -> None:
    with dial(served, "/sessions/by-socket/stream") as client:
        client.send(json.dumps({"code": "1 + 1"}))
        assert list(received(client))[-1]["result"]["return_value"] == "2"
    served.http.delete("/kernels/by-socket")


def test_an_answer_over_a_websocket_needs_the_token_and_the_question_stays(served: Served, key: str) -> None:
    with dial(served, f"/kernels/{key}/stream") as client:
        client.send(json.dumps({"code": "!echo ran", "approve": "ask"}))
        events = []
        for event in received(client):
            events.append(event)
            if event["type"] == "approval":
                client.send(json.dumps({"type": "answer", "id": event["id"], "accept": True}))
    assert (events[-1]["type"], events[-1]["status"], events[-1]["code"]) == ("failed", 401, "token_required")
    job = served.http.get(f"/jobs/{events[0]['job_id']}").json()
    assert (job["state"], len(job["approvals"])) == ("running", 1)
    served.post(f"/jobs/{job['id']}/cancel")


def test_approvals_are_answered_over_a_websocket(served: Served, key: str) -> None:
    with dial(served, f"/kernels/{key}/stream", additional_headers=served.proof) as client:
        client.send(json.dumps({"code": "!echo one\n!echo two", "approve": "ask"}))
        events = []
        for event in received(client):
            events.append(event)
            if event["type"] == "approval":
                accept = event["tool_args"]["cmd"] == "echo one"
                client.send(json.dumps({"type": "answer", "id": event["id"], "accept": accept}))
    assert [event["accepted"] for event in events if event["type"] == "decision"] == [True, False]
    assert (events[-1]["result"]["output"], events[-1]["result"]["error"]["ename"]) == (
        "one\n",
        "ApprovalRejectedError",
    )


def test_a_cell_is_cancelled_over_a_websocket(served: Served, key: str) -> None:
    with dial(served, f"/kernels/{key}/stream") as client:
        client.send(json.dumps({"code": ENDLESS}))
        client.send(json.dumps({"type": "cancel"}))
        assert list(received(client))[-1]["result"]["error"]["ename"] == "Cancelled"


def test_a_job_is_followed_over_a_websocket_from_where_it_was_left(served: Served, key: str) -> None:
    with dial(served, f"/kernels/{key}/stream") as client:
        client.send(json.dumps({"code": f"print('a')\n{ENDLESS}"}))
        events = received(client)
        first, output = next(events), next(events)
    with dial(served, f"/jobs/{first['job_id']}/events?after={output['seq']}") as client:
        client.send(json.dumps({"type": "cancel"}))
        assert [event["type"] for event in received(client)] == ["result"]


@pytest.mark.parametrize("wanted", ["continue", "interrupt"])
def test_what_becomes_of_a_cell_whose_websocket_closes_is_the_clients_choice(
    served: Served, key: str, wanted: str
) -> None:
    go = served.workspace / f"go-{key}"
    code = f"import os, time\nprint('a')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    with dial(served, f"/kernels/{key}/stream") as client:
        client.send(json.dumps({"code": code, "on_disconnect": wanted}))
        events = received(client)
        job_id = next(events)["job_id"]
        next(events)
    if wanted == "continue":
        go.touch()
    result = list(events_of(served, job_id))[-1]["result"]
    assert result["status"] == ("success" if wanted == "continue" else "error")


@pytest.mark.parametrize(
    "message",
    ["", "x", "[]", "5", '{"code": 5}', "{}", '{"code": "1", "timeout": 0}', "[" * 100_000, b"\xff"],
    ids=["empty", "text", "list", "number", "type", "nothing", "timeout", "deep", "bytes"],
)
def test_a_first_message_that_makes_no_sense_is_refused(served: Served, key: str, message: str | bytes) -> None:
    with dial(served, f"/kernels/{key}/stream") as client:
        client.send(message)
        (refusal,) = received(client)
        assert (refusal["type"], refusal["status"], client.close_code) == ("failed", 422, 1008)
    assert served.execute(key, "1")["execution_count"] == 1


@pytest.mark.parametrize("message", ['{"type": "?"}', "[]", '{"type": "answer"}'])
def test_a_later_message_that_makes_no_sense_is_refused_and_the_cell_goes_on(
    served: Served, key: str, message: str
) -> None:
    go = served.workspace / f"go-{key}"
    with dial(served, f"/kernels/{key}/stream", additional_headers=served.proof) as client:
        code = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n'done'"
        client.send(json.dumps({"code": code}))
        events = received(client)
        job_id = next(events)["job_id"]
        client.send(message)
        assert list(events)[-1]["status"] == 422
    go.touch()
    assert list(events_of(served, job_id))[-1]["result"]["return_value"] == "'done'"


def test_a_kernel_or_job_that_is_not_there_is_refused_on_a_websocket(served: Served) -> None:
    with dial(served, "/kernels/nobody/stream") as client:
        client.send(json.dumps({"code": "1"}))
        assert [event["code"] for event in received(client)] == ["kernel_not_found"]
    with dial(served, f"/jobs/{'0' * 32}/events") as client:
        assert [event["code"] for event in received(client)] == ["job_not_found"]


def test_a_frame_that_is_too_large_closes_the_connection(served: Served, key: str) -> None:
    with dial(served, f"/kernels/{key}/stream") as client:
        with contextlib.suppress(ConnectionClosed):
            client.send("x" * (17 * 1024 * 1024))
        assert list(received(client)) == []
        assert client.close_code in (1009, 1006)  # if the end of the connection overtook it: the client goes on sending
    assert served.execute(key, "1")["return_value"] == "1"


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}])
def test_a_web_page_of_another_site_gets_no_websocket(served: Served, key: str, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(served, f"/kernels/{key}/stream", additional_headers=headers)
    assert refused.value.response.status_code == 403


def test_a_websocket_needs_the_token(tmp_path: Path, key_file: Path, service_home: Path) -> None:
    secret = "a-token-for-sockets"
    with serving(tmp_path, KERNELBOX_HOME=str(service_home), KERNELBOX_TOKEN=secret) as served:
        with pytest.raises(InvalidStatus) as refused:
            dial(served, "/sessions/x/stream")
        assert refused.value.response.status_code == 401
        with dial(served, f"/sessions/x/stream?token={secret}") as client:
            client.send(json.dumps({"code": "1 + 1"}))
            assert list(received(client))[-1]["result"]["return_value"] == "2"
        served.http.delete("/kernels/x", headers={"Authorization": f"Bearer {secret}"})


def test_many_websockets_that_say_nothing_do_no_harm(served: Served, key: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(dial(served, f"/kernels/{key}/stream"))
        assert served.execute(key, "1 + 1")["return_value"] == "2"


def test_an_answer_to_no_question_is_refused_and_the_cell_goes_on(served: Served, key: str) -> None:
    url = f"{served.url.replace('http:', 'ws:')}/kernels/{key}/stream"
    code = "import os, time\nwhile not os.path.exists('answered'): time.sleep(0.01)\n'done'"
    with connect(url, open_timeout=DEADLINE, proxy=None, additional_headers=served.proof) as client:
        client.send(json.dumps({"code": code, "on_disconnect": "interrupt"}))
        job_id = json.loads(client.recv(DEADLINE))["job_id"]
        client.send(json.dumps({"type": "answer", "id": "none", "accept": True}))
        said = json.loads(client.recv(DEADLINE))
        assert (said["type"], said["code"]) == ("failed", "approval_closed")
        with pytest.raises(ConnectionClosedError):
            client.recv(DEADLINE)
    (served.workspace / "answered").touch()
    *_, last = events_of(served, job_id)
    assert last["result"]["return_value"] == "'done'"
