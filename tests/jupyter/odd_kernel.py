"""A Jupyter kernel that does on purpose what others do by accident: `odd_kernel.py CONNECTION_FILE [habit …]`.

Its cells are lines of `say TEXT`, `fail`, `wait` (until it is interrupted, by a message), and `leave` (asks its client
to end it, as the protocol has it, and does nothing about it by itself). Habits: `forgets-idle` publishes no idle for
cells, `forgets-reply` does not reply to them, `stays` does not end when it is asked to. It is written against the
protocol, with nothing of kernelbox in it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import zmq

DELIMITER = b"<IDS|MSG>"


class OddKernel:
    def __init__(self, connection_file: str, habits: list[str]) -> None:
        self.info = json.loads(Path(connection_file).read_text())
        self.forgets_idle = "forgets-idle" in habits
        self.forgets_reply = "forgets-reply" in habits
        self.stays = "stays" in habits
        self.count = 0
        context = zmq.Context()
        self.shell = self.bind(context, zmq.ROUTER, "shell")
        self.control = self.bind(context, zmq.ROUTER, "control")
        self.iopub = self.bind(context, zmq.PUB, "iopub")

    def bind(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, channel: str) -> zmq.Socket[bytes]:
        sock = context.socket(kind)
        separator = "-" if self.info["transport"] == "ipc" else ":"
        sock.bind(f"{self.info['transport']}://{self.info['ip']}{separator}{self.info[channel + '_port']}")
        return sock

    def serve(self) -> None:
        while True:
            ready = dict(self.poll(self.shell, self.control))
            if self.control in ready and self.answer_control():
                return
            if self.shell in ready:
                self.answer_shell()

    def poll(self, *sockets: zmq.Socket[bytes]) -> list[tuple[Any, int]]:
        poller = zmq.Poller()
        for sock in sockets:
            poller.register(sock, zmq.POLLIN)
        return poller.poll()

    def answer_shell(self) -> None:
        identity, parent, content = self.receive(self.shell)
        kind = parent["msg_type"].removesuffix("_request")
        self.publish("status", {"execution_state": "busy"}, parent)
        reply = self.execute(parent, content) if kind == "execute" else {"status": "ok"}
        if not (self.forgets_reply and kind == "execute"):
            self.send(self.shell, identity, f"{kind}_reply", reply, parent)
        if not (self.forgets_idle and kind == "execute"):
            self.publish("status", {"execution_state": "idle"}, parent)

    def execute(self, parent: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        self.publish("execute_input", {"code": content["code"], "execution_count": self.count}, parent)
        for line in content["code"].splitlines():
            word, _, rest = line.partition(" ")
            if word == "say":
                self.publish("stream", {"name": "stdout", "text": rest + "\n"}, parent)
            elif word == "fail":
                return {"status": "error", "ename": "\x1b[31mOdd\x1b[0m", "evalue": rest, "traceback": []}
            elif word == "leave":
                return {"status": "ok", "payload": [{"source": "ask_exit", "keepkernel": False}]}
            elif word == "wait":
                self.poll(self.control)
                self.answer_control()
                return {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}
        return {"status": "ok", "execution_count": self.count}

    def answer_control(self) -> bool:
        """Answers what came on the control channel; returns whether it was the end."""
        identity, parent, content = self.receive(self.control)
        kind = parent["msg_type"].removesuffix("_request")
        self.send(self.control, identity, f"{kind}_reply", {"status": "ok", **content}, parent)
        return bool(kind == "shutdown") and not self.stays

    def receive(self, sock: zmq.Socket[bytes]) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
        identity, delimiter, signature, *parts = sock.recv_multipart()
        assert delimiter == DELIMITER
        assert signature == self.sign(parts), "a request that is not signed with the key"
        return identity, json.loads(parts[0]), json.loads(parts[3])

    def publish(self, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> None:
        self.send(self.iopub, kind.encode(), kind, content, parent)

    def send(
        self, sock: zmq.Socket[bytes], first: bytes, kind: str, content: dict[str, Any], parent: dict[str, Any]
    ) -> None:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "odd", "username": "odd", "version": "5.3"}
        parts = [json.dumps(part).encode() for part in (header, parent, {}, content)]
        sock.send_multipart([first, DELIMITER, self.sign(parts), *parts])

    def sign(self, parts: list[bytes]) -> bytes:
        return hmac.new(self.info["key"].encode(), b"".join(parts), hashlib.sha256).hexdigest().encode()


if __name__ == "__main__":
    OddKernel(sys.argv[1], sys.argv[2:]).serve()
