"""Results of any length: they arrive whole, and are made and sent in pieces between which others are served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message
from tests.support.server import DEADLINE, Served, events_of, steps_during
from websockets.sync.client import connect

from kernelbox import ExecutionResult, KernelBoxConfig
from kernelbox.host.files._home import Home
from kernelbox.host.store._job_journal import Journal
from kernelbox.server.http._callers import Caller
from kernelbox.server.http._long_json import PIECE, dump_in_pieces
from kernelbox.server.jobs._answers import answer_with, answer_with_json, encode_result
from kernelbox.server.jobs._event_streams import EventStream
from kernelbox.wire._json import dump

# Characters that a cell writes: of each letter so many.
LENGTH = 3_000_000
WRITE = f"import sys; sys.stdout.write('é' * {LENGTH}); sys.stderr.write('x' * {LENGTH})"
ALL = {"code": WRITE, "output_char_limit": 0}


def is_whole(result: dict[str, Any]) -> bool:
    return bool(result["output"] == "é" * LENGTH and result["stderr"] == "x" * LENGTH)


def is_in_pieces(answer: httpx2.Response) -> bool:
    return answer.headers.get("transfer-encoding") == "chunked"


# -- over HTTP -------------------------------------------------------------------------------------------------


def test_a_long_result_arrives_whole_and_in_pieces(served: Served, key: str) -> None:
    for path in ("execute", "execute/retry"):
        answer = served.post(f"/kernels/{key}/{path}", ALL)
        assert is_whole(answer.json())
        assert is_in_pieces(answer)
    assert not is_in_pieces(served.post(f"/kernels/{key}/execute", {"code": "1 + 1"}))


@pytest.mark.slow
def test_a_long_result_of_a_job_arrives_whole_wherever_it_is_asked_for(served: Served, other: Served, key: str) -> None:
    once = {"Idempotency-Key": f"long-{key}"}
    answer = served.post(f"/kernels/{key}/execute", ALL, **once)
    assert is_whole(answer.json())
    assert is_in_pieces(answer)
    job_id = answer.headers["location"].rpartition("/")[2]
    assert other.post(f"/kernels/{key}/execute", ALL, **once).json() == answer.json()
    told = served.http.get(f"/jobs/{job_id}")
    assert is_in_pieces(told)
    assert (told.json()["state"], told.json()["result"]) == ("done", answer.json())
    assert served.post(f"/jobs/{job_id}/cancel").json()["result"] == answer.json()
    assert served.http.get(f"/jobs?kernel={key}").json()["jobs"][0]["result"] == answer.json()
    for server in (served, other):
        *_, last = events_of(server, job_id)
        assert last["result"] == answer.json()


def test_a_long_event_comes_over_a_websocket_in_several_frames(served: Served, key: str) -> None:
    url = f"{served.url.replace('http:', 'ws:')}/kernels/{key}/stream"
    with connect(url, open_timeout=DEADLINE, max_size=None, proxy=None) as client:
        client.send(json.dumps(ALL))
        frames: list[str] = []
        while not frames or not frames[0].startswith('{"seq":') or '"type":"result"' not in frames[0]:
            frames = [str(frame) for frame in client.recv_streaming()]
        assert len(frames) > 10
        assert is_whole(json.loads("".join(frames))["result"])
        assert client.protocol.extensions == []  # nothing is compressed, which takes ten times as long


def test_a_result_that_a_cell_has_damaged_is_not_told(served: Served, key: str, service_home: Path) -> None:
    once = {"Idempotency-Key": f"damaged-result-{key}"}
    answer = served.post(f"/kernels/{key}/execute", {"code": "6 * 7"}, **once)
    job_id = answer.headers["location"].rpartition("/")[2]
    kept = service_home / "jobs" / job_id
    kept.write_bytes(kept.read_bytes().replace(b'"success"', b'"forged!"'))
    for refusal in (
        served.http.get(f"/jobs/{job_id}"),
        served.post(f"/jobs/{job_id}/cancel"),
        served.post(f"/kernels/{key}/execute", {"code": "6 * 7"}, **once),
    ):
        assert (refusal.status_code, refusal.json()["code"]) == (409, "job_damaged")
    assert job_id not in {job["id"] for job in served.http.get("/jobs").json()["jobs"]}


def test_a_result_that_another_version_kept_in_a_file_of_its_own_is_not_called_damaged(
    served: Served, key: str, service_home: Path
) -> None:
    answer = served.post(f"/kernels/{key}/execute", {"code": "6 * 7"}, **{"Idempotency-Key": f"two-files-{key}"})
    kept = service_home / "jobs" / answer.headers["location"].rpartition("/")[2]
    journal = Journal(Home(str(service_home), KernelBoxConfig.from_env().key_file))
    record = {**(journal.read(kept.name) or {}), "server": None}
    kept.write_bytes(journal.signature(kept.name).sign("job", dump(record)))
    refusal = served.http.get(f"/jobs/{kept.name}")
    assert (refusal.status_code, refusal.json()["code"]) == (409, "job_damaged")
    assert "another version of kernelbox has written it" in refusal.json()["detail"]


# -- in pieces -------------------------------------------------------------------------------------------------

_short = st.text(max_size=20) | st.just("\ud800é\n")
_texts = _short | _short.map(lambda text: text * (PIECE // 7))
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(_values)
def test_pieces_are_together_what_is_encoded_at_one_go(value: object) -> None:
    assert b"".join(dump_in_pieces(value)) == dump(value)


def test_no_piece_is_large() -> None:
    pieces = list(dump_in_pieces({"a": "x" * 10 * PIECE, "b": ["y"] * PIECE, "c": {"d": "\0" * 5 * PIECE}}))
    assert len(pieces) > 15
    assert max(map(len, pieces)) <= 12 * PIECE  # a character may take six


def long_result() -> ExecutionResult:
    text = "x" * (40 * PIECE)
    return ExecutionResult("success", output=text, text=text)


async def _receive() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def _send(message: Message) -> None:
    pass


SCOPE = {"type": "http", "method": "GET", "asgi": {"spec_version": "2.3"}}


def test_others_are_served_while_a_long_answer_is_sent() -> None:
    async def count() -> None:
        for answer in (answer_with(long_result(), Caller()), answer_with_json(b"x" * (40 * PIECE))):
            assert await steps_during(answer(SCOPE, _receive, _send)) > 40

    asyncio.run(count())


def test_others_are_served_while_a_long_result_is_encoded() -> None:
    async def count() -> None:
        assert await steps_during(encode_result(long_result(), Caller())) > 3

    asyncio.run(count())


def test_others_are_served_while_a_long_event_is_sent() -> None:
    async def events() -> AsyncGenerator[tuple[int, str, bytes]]:
        yield 1, "result", b"x" * (41 * PIECE)

    async def count() -> None:
        stream = EventStream(events(), headers={})
        assert await steps_during(stream(SCOPE, _receive, _send)) > 40

    asyncio.run(count())


def test_a_stream_without_events_says_that_it_lives() -> None:
    async def follow() -> list[bytes]:
        sent: list[bytes] = []
        is_alive = asyncio.Event()

        async def events() -> AsyncGenerator[tuple[int, str, bytes]]:
            yield 1, "started", b"{}"
            await is_alive.wait()
            yield 2, "result", b"{}"

        async def send(message: Message) -> None:
            sent.append(message.get("body", b""))
            if sent.count(b": \n\n") > 2:
                is_alive.set()

        async with asyncio.timeout(DEADLINE):
            await EventStream(events(), headers={}, sign_of_life=0.001)(SCOPE, _receive, send)
        return sent

    sent = asyncio.run(follow())
    assert sent[1] == b"id: 1\nevent: started\ndata: {}\n\n"
    assert sent[-2] == b"id: 2\nevent: result\ndata: {}\n\n"
    assert set(sent[2:-2]) == {b": \n\n"}
