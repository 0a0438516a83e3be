"""Front ends that lose their connection and come back, and connections that nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import uvicorn
from starlette.websockets import WebSocket
from tests.support.bounded import run
from tests.support.front_ends import attached
from tests.support.server import Served
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from kernelbox.server.http._websocket_protocol import BoundedWebSocket
from kernelbox.server.jupyter._front_end_message import Author, JupyterMessage
from kernelbox.server.jupyter._reconnecting import MissedMessages, ReconnectingFrontEnd
from kernelbox.server.jupyter._socket_front_end import SocketFrontEnd
from kernelbox.server.jupyter._websocket_codec import CodecV1

from .test_watching import until

# The beginning of a cell that goes on when a file is there.
WAIT = "import pathlib, time\nprint('on')\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)\n"


def wait_until_done(served: Served, kernel_id: str) -> None:
    """Returns when the kernel is idle: another face's cell comes behind that of the front end."""
    served.execute(kernel_id.replace("-", ""), "pass")


def test_what_a_cell_says_while_its_front_end_is_away_is_told_when_it_returns(
    served: Served, kernel_id: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with attached(served, kernel_id, session="ann") as one:
        request = one.send("execute_request", {"code": WAIT.format(str(gate)) + "print('off')\n6 * 7"})
        until(one, "stream")
    gate.touch()
    wait_until_done(served, kernel_id)
    with attached(served, kernel_id, session="ann", v1=False) as one:
        answered = one.finish(request)
        assert answered.kinds == ["stream", "execute_result", "status"]
        assert (answered.text, answered.content["status"]) == ("off\n", "ok")
        assert one.run("1").content["status"] == "ok"


def test_another_session_is_not_told_what_one_has_missed(served: Served, kernel_id: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with attached(served, kernel_id, session="ann") as one:
        one.send("execute_request", {"code": WAIT.format(str(gate)) + "print('off')"})
        until(one, "stream")
    gate.touch()
    wait_until_done(served, kernel_id)
    for session in ("bob", ""):
        with attached(served, kernel_id, session=session) as other:
            request = other.send("kernel_info_request")
            kinds = set()
            while (message := other.receive()).parent.get("msg_id") != request.id:
                kinds.add(message.kind)
            assert kinds <= {"status"}  # of the cell that was waited for


@pytest.mark.parametrize(("others", "is_told"), [(7, True), (8, False)])
def test_of_the_front_ends_of_one_kernel_the_last_eight_to_go_are_expected(
    served: Served, kernel_id: str, others: int, is_told: bool
) -> None:
    with attached(served, kernel_id, session="first"):
        pass
    for number in range(others):
        with attached(served, kernel_id, session=f"later-{number}") as other:
            other.ask("kernel_info_request")
    served.execute(kernel_id.replace("-", ""), "print('missed')")
    with attached(served, kernel_id, session="first") as one:
        request = one.send("kernel_info_request")
        first = one.receive()
        one.finish(request)  # a client that has much to read takes ten seconds to close its connection
    assert (first.parent.get("msg_id") != request.id) is is_told


def test_of_many_front_ends_that_are_away_the_last_to_go_are_expected(served: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    kernels = [served.post("/api/kernels", {}).json()["id"] for _ in range(9)]
    with attached(served, kernels[0], session="first") as one:
        one.send("execute_request", {"code": WAIT.format(str(gate)) + "print('off')"})
        until(one, "stream")
    for number in range(64):
        with attached(served, kernels[1 + number // 8], session=f"later-{number}") as other:
            other.ask("kernel_info_request")
    gate.touch()
    wait_until_done(served, kernels[0])
    with attached(served, kernels[0], session="first") as one:
        request = one.send("kernel_info_request")
        assert one.receive().parent["msg_id"] == request.id
    for kernel_id in kernels:
        served.http.delete(f"/api/kernels/{kernel_id}")


def test_more_than_is_kept_is_dropped_from_the_oldest_output_on_and_said_so(
    served: Served, kernel_id: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with attached(served, kernel_id, session="ann") as one:
        code = WAIT.format(str(gate)) + "for n in range(40): print(f'{n:02}' * 500_000)"
        request = one.send("execute_request", {"code": code})
        until(one, "stream")
    gate.touch()
    wait_until_done(served, kernel_id)
    with attached(served, kernel_id, session="ann") as one:
        answered = one.finish(request)
    first = answered.told[0]
    assert first.content["name"] == "stderr"
    assert "messages" in first.content["text"]
    assert "dropped" in first.content["text"]
    rest = answered.text.removeprefix(first.content["text"])
    assert 1_000_000 < len(rest) < 17 * 1024 * 1024
    assert rest.endswith("39" * 500_000 + "\n")
    assert answered.content["status"] == "ok"


def test_input_waits_for_a_front_end_that_may_come_back(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id, session="ann") as one:
        request = one.send("execute_request", {"code": "print(input('name? '))", "allow_stdin": True})
        until(one, "input_request")
    with attached(served, kernel_id, session="ann") as one:
        one.send("input_reply", {"value": "Ada"}, channel="stdin")
        assert one.finish(request).text == "Ada\n"


def test_input_that_is_asked_for_meanwhile_is_told_too(served: Served, kernel_id: str, tmp_path: Path) -> None:
    gate, asked = tmp_path / "gate", tmp_path / "asked"
    with attached(served, kernel_id, session="ann") as one:
        code = WAIT.format(str(gate)) + f"pathlib.Path({str(asked)!r}).touch(); print(input('name? '))"
        request = one.send("execute_request", {"code": code, "allow_stdin": True})
        until(one, "stream")
    gate.touch()
    with attached(served, kernel_id, session="ann") as one:
        assert one.finish(request, lambda message: str(message.content["prompt"])).text == "name? \n"


def test_a_second_connection_of_a_session_takes_the_place_of_the_first(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id, session="ann") as one:
        one.ask("kernel_info_request")
        with attached(served, kernel_id, session="ann") as again:
            with pytest.raises(ConnectionClosed):
                one.receive()
            assert again.run("print('here')").text == "here\n"
            assert served.http.get(f"/api/kernels/{kernel_id}").json()["connections"] == 1


def test_a_front_end_that_is_away_is_not_counted_as_connected(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id, session="ann") as one:
        one.ask("kernel_info_request")
    with attached(served, kernel_id) as other:
        other.ask("kernel_info_request")
        assert served.http.get(f"/api/kernels/{kernel_id}").json()["connections"] == 1


def message(kind: str, size: int) -> JupyterMessage:
    header = {"msg_type": kind, "msg_id": os.urandom(4).hex()}
    return JupyterMessage("iopub", header, {"msg_id": "p"}, content={"text": "x" * size})


def test_replies_are_kept_when_outputs_are_dropped() -> None:
    kept = MissedMessages(Author("s", str))
    kept.add(message("execute_reply", 1000))
    for _ in range(30):
        kept.add(message("stream", 1_000_000))
    kept.add(message("status", 10))
    kinds = []
    while (first := kept.take_first()) is not None:
        kinds.append(first.kind)
    assert kinds[:2] == ["stream", "execute_reply"]
    assert kinds[-1] == "status"
    assert 10 < len(kinds) < 30


class Slow:
    """A connection over which nothing is sent before there is room."""

    closed = False

    def __init__(self) -> None:
        self.told: list[JupyterMessage] = []
        self.room = asyncio.Event()

    @property
    def unread(self) -> list[JupyterMessage]:
        return [] if self.room.is_set() else self.told

    async def send(self, message: JupyterMessage) -> None:
        self.told.append(message)
        await self.room.wait()

    def replace(self) -> None:
        pass


def test_what_comes_while_a_front_end_is_told_what_it_has_missed_is_told_or_said_to_be_dropped() -> None:
    async def main() -> list[JupyterMessage]:
        lasting, slow = ReconnectingFrontEnd(Author("s", str)), Slow()
        for _ in range(14):
            await lasting.send(message("stream", 1_000_000))
        coming = asyncio.ensure_future(lasting.come(slow))
        await asyncio.sleep(0)  # until it sends the first
        for _ in range(6):
            await lasting.send(message("stream", 1_000_000))
        slow.room.set()
        await coming
        return slow.told

    texts = [told.content["text"] for told in run(main)]
    (dropped,) = [text for text in texts if text.startswith("[kernelbox]")]
    assert len(texts) - 1 + int(dropped.split()[1]) == 20


def test_what_a_second_connection_finds_unsent_at_the_first_is_told_once() -> None:
    async def main() -> list[JupyterMessage]:
        lasting, first, second = ReconnectingFrontEnd(Author("s", str)), Slow(), Slow()
        for _ in range(2):
            await lasting.send(message("stream", 1))
        coming = asyncio.ensure_future(lasting.come(first))
        await asyncio.sleep(0)  # until it waits to send the first
        second.room.set()
        await lasting.come(second)
        first.room.set()
        await coming
        assert not lasting.go(first)
        await lasting.send(message("stream", 1))
        return second.told

    ids = [told.id for told in run(main)]
    assert len(ids) == len(set(ids)) == 3


def test_a_million_small_messages_are_bounded_too() -> None:
    kept = MissedMessages(Author("s", str))
    for _ in range(40_000):
        kept.add(message("status", 1))
    assert "dropped" in repr(kept)
    assert int(repr(kept).split()[0]) < 40_000


class Client(NamedTuple):
    """What a client has, and the server that it has reached."""

    server: uvicorn.Server
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Unread:
    """A WebSocket application behind our own protocol, and a client that reads nothing.

    It sends without end or, if it `answers`, for every message of the client's one that is long.
    """

    def __init__(self, patience: float, *, answers: bool = False) -> None:
        self.ended = asyncio.Event()
        self.sent = 0
        self._patience = patience
        self._answers = answers

    async def __call__(self, scope: dict[str, str], receive: object, send: object) -> None:
        websocket = WebSocket(scope, receive, send)  # type: ignore[arg-type]  # an application as uvicorn calls it
        await websocket.accept()
        front_end = SocketFrontEnd(websocket, CodecV1(), patience=self._patience)
        answers: list[asyncio.Future[None]] = []

        async def answer() -> None:
            self.sent += 1
            await front_end.send(message("stream", 1_000_000))

        serving = asyncio.ensure_future(front_end.serve(lambda _: answers.append(asyncio.ensure_future(answer()))))
        while not self._answers and not front_end.closed:
            await answer()
        await asyncio.wait({serving, *answers})
        self.ended.set()

    @contextlib.asynccontextmanager
    async def serve(self, ping: float) -> AsyncIterator[Client]:
        """Serves a client until its connection has been ended by us."""
        config = uvicorn.Config(
            self,
            ws=BoundedWebSocket,
            ws_ping_interval=ping,
            ws_ping_timeout=ping,
            log_config=None,
            lifespan="off",
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(config)
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(
                b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            yield Client(server, reader, writer)
            await self.ended.wait()
            while server.server_state.connections:  # noqa: ASYNC110  # uvicorn says nothing when one has ended
                await asyncio.sleep(0.01)
            writer.close()
            server.should_exit = True
            await serving


@pytest.mark.parametrize(("patience", "ping"), [(1000.0, 0.2), (0.2, 0.5)], ids=["by ping", "by what waits"])
def test_a_connection_that_nobody_reads_is_ended_and_little_waits_for_it_before(patience: float, ping: float) -> None:
    async def main() -> int:
        unread = Unread(patience)
        async with unread.serve(ping):
            pass
        return unread.sent

    assert run(main) < 40, "16 MB wait here, and some in the sockets"


def test_a_front_end_that_reads_no_replies_is_not_heard() -> None:
    async def main() -> int:
        unread = Unread(0.5, answers=True)
        async with unread.serve(0.5) as client:
            request = CodecV1().encode(message("kernel_info_request", 1))
            client.writer.write(Frame(Opcode.BINARY, request).serialize(mask=True) * 200)
        return unread.sent

    assert run(main) < 60, "32 MiB wait here, and some in the sockets"


def test_a_connection_is_kept_that_answers_no_ping_because_it_is_slow() -> None:
    async def main() -> None:
        async with Unread(1000.0).serve(1000.0) as client:
            (protocol,) = client.server.server_state.connections
            assert isinstance(protocol, BoundedWebSocket)
            for _ in range(2):
                await read_until_written(protocol, client.reader)
                protocol.keepalive_timeout()  # as a timer calls it when no answer to a ping has come
                assert not protocol.transport.is_closing(), "it has been reading"
            protocol.keepalive_timeout()
            assert protocol.transport.is_closing(), "it has read nothing since"

    run(main)


async def read_until_written(protocol: BoundedWebSocket, reader: asyncio.StreamReader) -> None:
    """Reads, once nothing more can be written, until something can."""
    while protocol.writable.is_set():  # noqa: ASYNC110  # asyncio tells nobody when it stops
        await asyncio.sleep(0.001)
    while not protocol.writable.is_set():
        assert await reader.read(1_000_000)
