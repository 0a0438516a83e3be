"""Requests that are wrong: the answer says what is, and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.server import DEADLINE, Served
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/kernel", "there is no route /kernel; /docs shows the routes"),
        ("POST", "/sessions/x/excute", "there is no route /sessions/x/excute; /docs shows the routes"),
        ("POST", "/kernels/x", "/kernels/x takes DELETE, GET, HEAD, and not POST; /docs shows what each route does"),
        ("DELETE", "/docs", "/docs takes GET, HEAD, and not DELETE; /docs shows what each route does"),
        ("GET", "/kernels/nobody", "there is no kernel 'nobody'; GET /kernels lists the kernels"),
        ("GET", "/files/no/where", "there is no file 'no/where' in the workspace; GET /files lists what is there"),
    ],
)
def test_a_route_or_a_kernel_that_is_not_there_is_named_with_where_to_look(
    served: Served, method: str, path: str, said: str
) -> None:
    answer = served.http.request(method, path)
    assert (answer.status_code in (404, 405), answer.json()["detail"]) == (True, said)


def test_a_websocket_where_there_is_none_is_answered_404_with_a_sentence(served: Served) -> None:
    url = served.url.replace("http", "ws")
    with pytest.raises(InvalidStatus) as refused, connect(f"{url}/kernels/x/strem", open_timeout=DEADLINE):
        pass
    assert refused.value.response.status_code == 404
    detail = json.loads(refused.value.response.body or b"{}")["detail"]
    assert detail == "there is no WebSocket at /kernels/x/strem; /docs shows the routes"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/kernels", {"sandbox": True}, "sandbox"),
        ("/sessions/x", {"limit": {"memory": "1GB"}}, "limit"),
        ("/sessions/x/execute", {"code": "1", "timout": 3}, "timout"),
        ("/kernels/x/execute", {"code": "1", "limits": {"memory": "1GB"}}, "limits"),
        ("/sessions/x/execute_with_retry", {"code": "1", "allow_network": False}, "allow_network"),
        ("/sessions/x/stream", {"code": "1", "on_disconect": "interrupt"}, "on_disconect"),
        ("/sessions/x/jobs", {"code": "1", "max_attempts": 3}, "max_attempts"),
        ("/jobs/x/approvals/y", {"accept": True, "because": "no"}, "because"),
    ],
)
def test_a_field_that_there_is_not_is_refused_by_name(
    served: Served, path: str, body: dict[str, Any], field: str
) -> None:
    answer = served.post(path, body, **served.proof)
    assert answer.status_code == 422
    [problem] = answer.json()["detail"]
    assert (problem["loc"], problem["msg"]) == (["body", field], "there is no field of this name; leave it out")


def test_a_body_that_is_not_called_json_says_which_header_is_missing(served: Served) -> None:
    answer = served.http.post("/sessions/x/execute", content=b'{"code": "1"}')
    assert answer.status_code == 422
    assert [problem["msg"] for problem in answer.json()["detail"]] == [
        "send a JSON object, with the header `Content-Type: application/json`"
    ]


def test_a_body_that_is_no_json_says_what_is_wrong_with_it(served: Served) -> None:
    answer = served.http.post(
        "/sessions/x/execute", content=b'{code: "1"}', headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    [problem] = answer.json()["detail"]
    assert problem["msg"] == "this is not JSON: Expecting property name enclosed in double quotes"


@pytest.mark.parametrize("path", ["/", "/health", "/docs", "/openapi.json", "/kernels", "/files", "/metrics"])
def test_head_has_the_head_of_get_and_no_body(served: Served, path: str) -> None:
    got, head = served.http.get(path), served.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]


def test_head_of_a_stream_does_not_wait_for_its_events(served: Served, key: str) -> None:
    job = served.post(f"/kernels/{key}/jobs", {"code": "import time; time.sleep(3600)", "timeout": 7200}).json()
    head = served.http.head(job["events"])
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert served.http.get("/health").status_code == 200  # on the same connection
    assert served.post(f"/jobs/{job['id']}/cancel").status_code == 200


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])  # either route
def test_fields_that_kernelbox_ignored_are_ignored(served: Served, content_type: str) -> None:
    extra = {"user_id": "ann", "trace": {"id": 1}, "store_history": True}
    for path, body, status in (
        ("/kernels", {"name": "extra", **extra}, 201),
        ("/sessions/extra", extra, 200),
        ("/sessions/extra/execute", {"code": "1", **extra}, 200),
        ("/kernels/extra/execute", {"code": "1", **extra}, 200),
        ("/kernels/extra/execute/retry", {"code": "1", **extra}, 200),
        ("/sessions/extra/execute_with_retry", {"code": "1", **extra}, 200),
        ("/sessions/extra/jobs", {"code": "1", **extra}, 422),  # our own
    ):
        answer = served.http.post(path, content=json.dumps(body).encode(), headers={"Content-Type": content_type})
        assert answer.status_code == status, (path, answer.text)
    served.http.delete("/kernels/extra")
