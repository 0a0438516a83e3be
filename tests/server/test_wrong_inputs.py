"""Requests that are wrong in every way that one can think of: each has a clear answer, and none holds anything up."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.support.server import DEADLINE, Served, fill, operations

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")

# What stands for an id, a name, a path or a file.
ODD = [
    *(
        "%00",
        "%0a",
        "%0d%0aX:%20y",
        "%2f",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fetc",
        "%5c",
        "%",
        "%zz",
        "%25",
        "%20",
        "+",
        "~",
    ),
    *("%ff%fe", "%ed%a0%80", "%f0%9f%98%80", "%e2%80%ae", "%c2%9b31m", "{key}", "%7b%7d", "%3cscript%3e", "'%22", ":"),
    *("0" * 32, "f" * 33, "-1", "1e9", "null", "undefined", "9" * 4000, "x" * 10_000, "%ef%bc%91", "a;b=c", "@", "*"),
]

# What is no body of any route, or hardly one.
BODIES = [
    *(
        b"",
        b"null",
        b"true",
        b"0",
        b"-1e999",
        b'"text"',
        b"[]",
        b"{",
        b"}",
        b"{}{}",
        b"{'code': 1}",
        b"\0",
        b"\xff\xfe",
    ),
    *(b'{"code": NaN}', b'{"code": "\\ud800"}', b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 50_000),
    *('{"code": "1"}'.encode("utf-16"), b'{"code": "1", "code": 2}', b'{"' + b"k" * 100_000 + b'": 1}', b"<xml/>"),
    *(b'{"accept": "\\u0000", "code": ["1"], "name": {}, "tags": [], "limits": "all", "path": 5, "kernel": 7}',),
    *(b'{"name": "\\u0000", "env": {"A=B": "\\u0000"}, "cursor_pos": 1e400, "code": {"code": {}}, "path": null}',),
]

TYPES = [
    *("", "text/plain", "application/xml", "multipart/form-data; boundary=x", "multipart/form-data", ";;;", "json"),
    *("application/json; charset=utf-16", "application/JSON", "application/json;", "x" * 5000, "application/*", "\xff"),
]

QUERIES = [
    *(
        "/kernels?refresh=maybe",
        "/kernels?refresh=",
        "/kernels?refresh=1&refresh=2",
        "/kernels?refresh=%00",
        "/kernels?%ff",
    ),
    *("/kernels/x/history?last=0", "/kernels/x/history?last=-1", "/kernels/x/history?last=" + "9" * 5000),
    *(
        "/kernels/x/history?last=1e3",
        "/kernels/x/history?last=%ef%bc%95",
        "/kernels/x/history?last=",
        "/kernels?" + "a=b&" * 9000,
    ),
    *(
        "/jobs?kernel=%00",
        "/jobs?kernel=%ed%a0%80",
        "/jobs?kernel=" + "x" * 10_000,
        "/jobs?kernel=&kernel=",
        "/jobs?token=x",
    ),
    *(
        "/jobs/x/events?after=-1",
        "/jobs/x/events?after=" + "9" * 5000,
        "/jobs/x/events?after=1.5",
        "/jobs/x/events?after=",
    ),
    *(
        "/jobs/x/events?after=%d9%a3",
        "/jobs/x/events?after=0x1",
        "/jobs/x/events?after=inf",
        "/files?path=..",
        "/?" + "&" * 50_000,
    ),
]


def complaint(answer: httpx2.Response) -> str:
    """Returns what is wrong with an answer: that it tells of a failure of ours, or not in the shape of all failures."""
    where = f"{answer.request.method} {str(answer.request.url)[:120]} {answer.request.content[:60]!r}: "
    if answer.status_code >= 500:
        return f"{where}{answer.status_code}"
    if answer.status_code < 400 or answer.request.method == "HEAD":
        return ""
    return "" if is_failure(answer.content) else f"{where}{answer.status_code} {answer.text[:100]}"


def is_failure(body: bytes) -> bool:
    """Tells whether a body has the shape of all failures."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        return False
    if not isinstance(told, dict) or told.keys() != {"detail", "code"} or not isinstance(told["code"], str):
        return False
    match told["detail"]:
        case str(sentence):
            return bool(sentence)
        case [*problems]:
            return all(problem.keys() == {"loc", "msg", "type"} for problem in problems)
    return False


@pytest.fixture(scope="module")
def cleared(served: Served) -> Iterator[Served]:
    """Has the kernels destroyed that requests have opened all the same."""
    yield served
    served.http.delete("/kernels")


def test_every_method_at_every_path_has_a_clear_answer(cleared: Served) -> None:
    known = set(operations(cleared))
    wrong = []
    for path in sorted({path for _, path in known}):
        for method in METHODS:
            answer = cleared.http.request(method, fill(path))
            wrong.append(complaint(answer))
            if (method, path) not in known and method != "HEAD":
                allowed = answer.headers.get("allow", "").split(", ")
                right = {m for m, p in known if p == path}
                is_clear = (
                    answer.status_code == 405 and sorted(right | {"HEAD"} if "GET" in right else right) == allowed
                )
                wrong.append("" if is_clear else f"{method} {path}: {answer.status_code} {allowed}")
    assert [each for each in wrong if each] == []


def test_every_path_with_an_odd_part_has_a_clear_answer(cleared: Served) -> None:
    wrong = []
    for method, path in operations(cleared):
        if "{" in path:
            for odd in ODD:
                names = ("key", "name", "job_id", "request_id", "path", "kernel_id", "session_id", "file")
                filled = fill(path, **dict.fromkeys(names, odd))
                wrong.append(complaint(cleared.http.request(method, filled)))
    assert [each for each in wrong if each] == []


def test_every_body_that_is_none_has_a_clear_answer(cleared: Served, key: str) -> None:
    wrong = []
    for method, path in operations(cleared):
        if method in ("POST", "PATCH", "PUT"):
            for body in BODIES:
                headers = {"Content-Type": "application/json", "Idempotency-Key": os.urandom(8).hex()}
                filled = fill(path, key=key, name="odd", kernel_id=key)
                wrong.append(complaint(cleared.http.request(method, filled, content=body, headers=headers)))
    assert [each for each in wrong if each] == []


def test_every_content_type_has_a_clear_answer(served: Served, key: str) -> None:
    wrong = []
    for path in ("execute", "execute/retry", "jobs", "stream", "complete", "interrupt"):
        for kind in TYPES:
            headers = httpx2.Headers({"Content-Type": kind}, "latin-1")
            answer = served.http.post(f"/kernels/{key}/{path}", content=b'{"code": "1"}', headers=headers)
            wrong.append(complaint(answer))
    assert [each for each in wrong if each] == []


def test_every_query_has_a_clear_answer(served: Served) -> None:
    assert [told for query in QUERIES if (told := complaint(served.http.get(query)))] == []


# -- below the routes ------------------------------------------------------------------------------------------


def post(*lines: str, body: str = '{"code": "1"}', first: str = "POST /sessions/x/execute HTTP/1.1") -> bytes:
    """Returns a request whose head has these lines beside those that it needs."""
    head = [first, "Host: localhost", "Connection: close", "Content-Type: application/json", *lines, "", body]
    return "\r\n".join(head).encode("latin-1")


LENGTH = "Content-Length: 13"
CHUNKED = "Transfer-Encoding: chunked"
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")

RAW = {
    "two lengths": post(LENGTH, "Content-Length: 5"),
    "the same length twice": post(LENGTH, LENGTH),
    "a list of lengths": post("Content-Length: 13, 13"),
    "a length and chunks": post(LENGTH, CHUNKED),
    "a length with a sign": post("Content-Length: +13"),
    "another transfer encoding": post("Transfer-Encoding: gzip"),
    "chunks in gzip": post("Transfer-Encoding: gzip, chunked"),
    "chunks twice": post("Transfer-Encoding: chunked, chunked"),
    "a chunk of no size": post(CHUNKED, body="\r\n\r\n"),
    "a chunk of a negative size": post(CHUNKED, body="-1\r\n\r\n"),
    "a chunk of an endless size": post(CHUNKED, body="f" * 40 + "\r\n{}\r\n"),
    "a chunk that is no number": post(CHUNKED, body="xyz\r\n{}\r\n0\r\n\r\n"),
    "a chunk without an end": post(CHUNKED, body="2\r\n{}0\r\n\r\n"),
    "two types": post(LENGTH, "Content-Type: text/plain"),
    "two tokens": post(LENGTH, "Authorization: Bearer a", "Authorization: Bearer b"),
    "two keys": post(LENGTH, "Idempotency-Key: a", "Idempotency-Key: b"),
    "two ids": post(LENGTH, "X-Request-ID: a", "X-Request-ID: b"),
    "two origins": post(LENGTH, "Origin: http://localhost", "Origin: http://evil.example"),
    "an odd key": post(LENGTH, "Idempotency-Key: \xff\xfe"),
    "a compressed body": post(LENGTH, "Content-Encoding: gzip"),
    "a folded header": post(LENGTH, "X: a\r\n b"),
    "a header without a colon": post(LENGTH, "nonsense"),
    "a header with a blank in its name": post(LENGTH, "X Y: z"),
    "a header without a name": post(LENGTH, ": z"),
    "nothing in a header": post(LENGTH, "X: a\0b"),
    "a bare line end in a header": post(LENGTH, "X: a\rb"),
    "an expectation": post(LENGTH, "Expect: 100-continue"),
    "another expectation": post(LENGTH, "Expect: a miracle"),
    "another protocol": post(LENGTH, "Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
    "a whole address": post(LENGTH, first="POST http://localhost/sessions/x/execute HTTP/1.1"),
    "another machine's address": post(LENGTH, first="POST http://evil.example/sessions/x/execute HTTP/1.1"),
    "an address that is none": post(LENGTH, first="POST http://[ HTTP/1.1"),
    "a path without a slash": post(LENGTH, first="POST kernels HTTP/1.1"),
    "a path that is not in ASCII": post(LENGTH, first="POST /kernels/\xe9\xff HTTP/1.1"),
    "a fragment": post(LENGTH, first="POST /kernels#x HTTP/1.1"),
    "two slashes": post(LENGTH, first="POST //kernels HTTP/1.1"),
    "a tunnel": post(first="CONNECT evil.example:80 HTTP/1.1", body=""),
    "the whole server": post(first="OPTIONS * HTTP/1.1", body=""),
    "a method in small letters": post(LENGTH, first="post /kernels HTTP/1.1"),
    "a method that is none": post(LENGTH, first="BREW /kernels HTTP/1.1"),
    "no version": b"GET /kernels\r\n\r\n",
    "an old version": post(LENGTH, first="POST /sessions/x/execute HTTP/1.0"),
    "a later version": post(LENGTH, first="POST /sessions/x/execute HTTP/2.0"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "a greeting of TLS": bytes.fromhex("16030100a5010000a10303") + b"\0" * 200,
    "line ends without returns": post(LENGTH).replace(b"\r\n", b"\n"),
    "a body where there is none": post(LENGTH, first="GET /health HTTP/1.1"),
    "a socket without a version": post(
        *UPGRADE, "Sec-WebSocket-Key: " + "A" * 22 + "==", first="GET /jobs/x/events HTTP/1.1"
    ),
    "a socket without a key": post(*UPGRADE, "Sec-WebSocket-Version: 13", first="GET /jobs/x/events HTTP/1.1"),
    "a socket with a bad key": post(
        *UPGRADE, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x", first="GET /x HTTP/1.1"
    ),
    "a socket by POST": post(*UPGRADE, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + "A" * 22 + "=="),
}


def send(served: Served, raw: bytes, *, and_close: bool = False) -> bytes:
    """Sends bytes as they are; returns what comes until the server closes, or all that is to come has."""
    address = urlsplit(served.url)
    heard = b""
    with socket.create_connection((address.hostname or "", address.port or 0), DEADLINE) as client:
        client.sendall(raw)
        if and_close:
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(65536):
                heard += piece
    return heard


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW.keys())
def test_what_is_hardly_a_request_has_a_clear_answer_or_ends_the_connection(served: Served, raw: bytes) -> None:
    heard = send(served, raw).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, _, body = heard.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    assert 200 <= status < 500, heard
    assert status < 400 or is_failure(body), heard
    assert served.http.get("/health").status_code == 200


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW.keys())
def test_a_client_that_says_no_more_is_not_waited_for(served: Served, raw: bytes) -> None:
    for cut in (raw, raw[: len(raw) // 2], raw[:-3]):
        heard = send(served, cut, and_close=True)
        assert not heard or b" 500 " not in heard.split(b"\r\n")[0]


def test_requests_that_come_at_once_on_a_connection_are_answered_in_order(served: Served, key: str) -> None:
    body = b'{"code": "6 * 7"}'
    execute = f"POST /kernels/{key}/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    execute += f"Content-Length: {len(body)}\r\n\r\n"
    nowhere = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    heard = send(served, execute.encode() + body + nowhere + execute.encode() + body + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", heard) == [b"200", b"404", b"200", b"200"]
    assert heard.count(b'"return_value":"42"') == 2
