"""Front ends that lose their connection and come back, and connections that nobody reads."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
import uvicorn
from starlette.websockets import WebSocket
from tests.server.support import DEADLINE, Served
from websockets.exceptions import ConnectionClosed

from kernelbox.frontends._lasting import Kept
from kernelbox.frontends._message import Author, JupyterMessage
from kernelbox.frontends._websocket import CodecV1
from kernelbox.server._socket_front_end import SocketFrontEnd
from kernelbox.web._websocket import BoundedWebSocket

from .support import attached
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
            assert other.receive().parent["msg_id"] == request.id


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
        assert (one.receive().parent.get("msg_id") != request.id) is is_told


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
    kept = Kept(Author("s", str))
    kept.add(message("execute_reply", 1000))
    for _ in range(30):
        kept.add(message("stream", 1_000_000))
    kept.add(message("status", 10))
    kinds = []
    while (first := kept.first()) is not None:
        kinds.append(first.kind)
        kept.drop_first()
    assert kinds[:2] == ["stream", "execute_reply"]
    assert kinds[-1] == "status"
    assert 10 < len(kinds) < 30


def test_a_million_small_messages_are_bounded_too() -> None:
    kept = Kept(Author("s", str))
    for _ in range(40_000):
        kept.add(message("status", 1))
    assert "dropped" in repr(kept)
    assert int(repr(kept).split()[0]) < 40_000


class Unread:
    """A WebSocket application that sends without end, behind our own protocol, and a client that reads nothing."""

    def __init__(self, patience: float) -> None:
        self.ended = asyncio.Event()
        self.sent = 0
        self._patience = patience

    async def __call__(self, scope: dict[str, str], receive: object, send: object) -> None:
        websocket = WebSocket(scope, receive, send)  # type: ignore[arg-type]  # an application as uvicorn calls it
        await websocket.accept()
        front_end = SocketFrontEnd(websocket, CodecV1(), patience=self._patience)
        serving = asyncio.ensure_future(front_end.serve(lambda message: None))
        while not front_end.closed:
            await front_end.send(message("stream", 1_000_000))
            self.sent += 1
        await asyncio.wait({serving})
        self.ended.set()

    async def run(self, ping: float) -> None:
        """Serves until the connection of a client that reads nothing has been ended by us."""
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
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(
                b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            transport = writer.transport
            assert isinstance(transport, asyncio.ReadTransport)
            transport.pause_reading()
            async with asyncio.timeout(DEADLINE):
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
        await unread.run(ping)
        return unread.sent

    assert asyncio.run(main()) < 40, "16 MB wait here, and some in the sockets"
