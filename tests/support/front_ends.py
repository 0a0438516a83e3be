"""A front end for the tests: a WebSocket client that sends requests and collects what comes of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.server import DEADLINE, Served
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from kernelbox.server.jupyter._front_end_message import JupyterMessage
from kernelbox.server.jupyter._websocket_codec import V1, codec_for


@dataclass
class Answered:
    """What a request led to: its reply, and what all front ends were told."""

    reply: JupyterMessage | None = None
    told: list[JupyterMessage] = field(default_factory=list)

    @property
    def content(self) -> dict[str, Any]:
        assert self.reply is not None
        return self.reply.content

    @property
    def text(self) -> str:
        return "".join(message.content["text"] for message in self.told if message.kind == "stream")

    @property
    def kinds(self) -> list[str]:
        return [message.kind for message in self.told]

    def first(self, kind: str) -> JupyterMessage:
        return next(message for message in self.told if message.kind == kind)


class FrontEnd:
    """One WebSocket to the channels of a kernel."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.codec = codec_for([connection.subprotocol] if connection.subprotocol else [])[1]

    def send(
        self,
        kind: str,
        content: dict[str, Any] | None = None,
        *,
        channel: Any = "shell",
        parent: dict[str, Any] | None = None,
        buffers: tuple[bytes, ...] = (),
    ) -> JupyterMessage:
        header = {"msg_id": os.urandom(16).hex(), "msg_type": kind, "session": "test", "username": "", "version": "5.3"}
        message = JupyterMessage(channel, header, parent or {}, {}, content or {}, buffers)
        self.connection.send(self.codec.encode(message))
        return message

    def receive(self) -> JupyterMessage:
        return self.codec.decode(self.connection.recv(DEADLINE))

    def finish(self, request: JupyterMessage, answer: Callable[[JupyterMessage], str] | None = None) -> Answered:
        """Collects what belongs to a request until its reply has come and the kernel is idle again."""
        found, idle = Answered(), False
        wants_reply = not request.kind.startswith("comm_") or request.kind == "comm_info_request"
        while not idle or (wants_reply and found.reply is None):
            message = self.receive()
            if message.parent.get("msg_id") != request.id:
                continue
            if message.channel == "stdin":
                assert answer is not None
                self.send("input_reply", {"value": answer(message)}, channel="stdin", parent=message.header)
            elif message.channel == "iopub":
                found.told.append(message)
                idle = message.kind == "status" and message.content["execution_state"] == "idle"
            else:
                found.reply = message
        return found

    def ask(self, kind: str, *, channel: Any = "shell", **content: Any) -> Answered:
        return self.finish(self.send(kind, content, channel=channel))

    def run(self, code: str, answer: Callable[[JupyterMessage], str] | None = None, **content: Any) -> Answered:
        return self.finish(self.send("execute_request", {"code": code, **content}), answer)


@contextlib.contextmanager
def attached(
    served: Served, kernel_id: str, *, v1: bool = True, session: str = "", **headers: str
) -> Iterator[FrontEnd]:
    """Connects a front end to a kernel; one with a session may come back."""
    query = f"?session_id={session}" if session else ""
    url = f"{served.url.replace('http', 'ws', 1)}/api/kernels/{kernel_id}/channels{query}"
    offered = [Subprotocol(V1)] if v1 else None
    with connect(
        url, subprotocols=offered, max_size=None, open_timeout=DEADLINE, proxy=None, additional_headers=headers
    ) as connection:
        yield FrontEnd(connection)
