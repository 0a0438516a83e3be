"""The direct routes: whatever a request has in it, its answer is that of FastAPI's own route."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest
from tests.support.server import Served

# A direct route takes the first; with the second, which means the same, FastAPI's does.
DIRECT, OTHER = "application/json", "application/json; charset=utf-8"

GOOD = [
    {"code": "1 + 1"},
    {"code": "print('é'); 1 / 0", "language": "python", "timeout": 5},
    {"code": "echo hello", "language": "bash", "timeout": 5.5, "approve": None, "output_char_limit": 3},
    {"code": "!echo no", "approve": "none"},
    {"code": ""},
    {"code": "a\0b"},
    {"code": "'\U0001f600'"},
]

BAD: list[object] = [
    *(None, [], "text", 5, True, {}, {"code": None}, {"code": 5}, {"code": ["1"]}, {"Code": "1"}),
    *({"code": "1", "language": "ruby"}, {"code": "1", "timeout": 0}, {"code": "1", "timeout": "5"}),
    *({"code": "1", "timeout": True}, {"code": "1", "timeout": 1e9}, {"code": "1", "output_char_limit": -1}),
    *({"code": "1", "output_char_limit": 1.5}, {"code": "1", "approve": "ask"}, {"code": "1", "approve": 1}),
    *({"code": "1", "sandbox": [1, {"a": None}]}, {"code": "1", **dict.fromkeys(map(str, range(2_000)))}),
    *({"code": "1", "timeout": float("nan")}, {"code": "1", "timeout": float("inf")}),
]

RAW = [
    *(b"", b"{", b"nothing", b"{'code': '1'}", b'{"code": "1"} x', b"\xff\xfe", b'{"code": "\\ud800"}', b"[" * 5000),
    *(
        b'{"code": "1", "code": "2"}',
        b'\xef\xbb\xbf{"code": "1"}',
        '{"code": "1"}'.encode("utf-16"),
        b' {"code": "3"} ',
    ),
    *(
        b'{"code": "1", "timeout": 1e999}',
        b'{"code": "1", "output_char_limit": 1' + b"0" * 5000 + b"}",
        b'{"code": "\xff"}',
    ),
]


def both(served: Served, path: str, body: bytes) -> tuple[httpx2.Response, httpx2.Response]:
    direct, other = (served.http.post(path, content=body, headers={"Content-Type": kind}) for kind in (DIRECT, OTHER))
    return direct, other


def told(answer: httpx2.Response) -> Any:
    """Returns what an answer says, without what is never twice the same."""
    said = json.loads(re.sub(r"Cell In\[\d+\]", "Cell In[n]", answer.text))
    for name in ("duration_ms", "execution_count", "execution_id"):
        said.pop(name, None)
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "date")}
    headers.pop("content-length")  # of the milliseconds
    return answer.status_code, headers, said


@pytest.mark.parametrize("route", ["kernels", "sessions"])
@pytest.mark.parametrize("body", GOOD, ids=repr)
def test_a_request_that_fits_has_the_same_result(served: Served, key: str, route: str, body: dict[str, Any]) -> None:
    direct, other = both(served, f"/{route}/{key}/execute", json.dumps(body).encode())
    assert direct.status_code == 200
    assert told(direct) == told(other)


@pytest.mark.parametrize("body", BAD, ids=repr)
def test_a_request_that_does_not_fit_has_the_same_refusal(served: Served, key: str, body: object) -> None:
    direct, other = both(served, f"/kernels/{key}/execute", json.dumps(body).encode())
    assert direct.status_code == 422
    assert told(direct) == told(other)


@pytest.mark.parametrize("body", RAW, ids=lambda body: repr(body[:20]))
def test_what_is_hardly_json_has_the_same_answer(served: Served, key: str, body: bytes) -> None:
    direct, other = both(served, f"/sessions/{key}/execute", body)
    assert told(direct) == told(other)


@pytest.mark.parametrize(
    "path", ["/kernels/nobody/execute", "/kernels/%20/execute", "/sessions/a%00b/execute", "/sessions/a%2Fb/execute"]
)
def test_a_kernel_that_cannot_be_has_the_same_refusal(served: Served, path: str) -> None:
    direct, other = both(served, path, b'{"code": "1"}')
    assert direct.status_code in (404, 422)
    assert told(direct) == told(other)


def test_a_key_is_that_of_either_route(served: Served, key: str) -> None:
    path, kinds = f"/kernels/{key}/execute", (DIRECT, OTHER)
    for number, (first, second) in enumerate([kinds, kinds[::-1]]):
        once = {"Idempotency-Key": f"either-{key}-{number}"}
        run, again = (
            served.http.post(path, content=b'{"code": "6 * 7"}', headers={"Content-Type": kind, **once})
            for kind in (first, second)
        )
        assert (run.status_code, run.json()["return_value"]) == (200, "42")
        assert (again.json(), again.headers["location"]) == (run.json(), run.headers["location"])


@pytest.mark.parametrize("once", ["", "a b", "x" * 256, "é"])
def test_a_key_that_is_not_valid_has_the_same_refusal(served: Served, key: str, once: str) -> None:
    headers = [{b"Content-Type": kind.encode(), b"Idempotency-Key": once.encode("latin-1")} for kind in (DIRECT, OTHER)]
    direct, other = (
        served.http.post(f"/kernels/{key}/execute", content=b'{"code": "1"}', headers=each) for each in headers
    )
    assert direct.status_code == 422
    assert told(direct) == told(other)


@pytest.mark.parametrize("route", ["kernels", "sessions"])
def test_a_stream_has_the_same_events(served: Served, key: str, route: str) -> None:
    streams = both(served, f"/{route}/{key}/stream", b'{"code": "print(1); 6 * 7"}')
    assert [stream.headers["content-type"] for stream in streams] == ["text/event-stream; charset=utf-8"] * 2
    kinds = [re.findall(r"^event: (.*)", stream.text, re.MULTILINE) for stream in streams]
    assert kinds[0] == kinds[1] == ["started", "output", "output", "result"]
    results = [json.loads(stream.text.rpartition("data: ")[2])["result"] for stream in streams]
    assert [(result["output"], result["return_value"]) for result in results] == [("1\n", "42")] * 2


@pytest.mark.parametrize("body", [{}, {"code": 5}, {"code": "1", "on_disconnect": "perhaps"}], ids=repr)
def test_a_stream_that_does_not_fit_has_the_same_refusal(served: Served, key: str, body: dict[str, Any]) -> None:
    direct, other = both(served, f"/kernels/{key}/stream", json.dumps(body).encode())
    assert direct.status_code == 422
    assert told(direct) == told(other)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(served: Served, key: str, method: str) -> None:
    answer = served.http.request(method, f"/kernels/{key}/execute", headers={"Content-Type": DIRECT})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded", "application/vnd.api+json"])
def test_a_request_of_another_type_is_answered_by_fastapi(served: Served, key: str, kind: str) -> None:
    answer = served.http.post(f"/kernels/{key}/execute", content=b'{"code": "1"}', headers={"Content-Type": kind})
    assert answer.status_code == (200 if kind.endswith("json") else 422)
