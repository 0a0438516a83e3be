"""One of our kernels behind the ZeroMQ sockets of a connection file: what plain Jupyter starts, without a server.

jupyter_client starts this program from the kernelspec, writes the connection file, and speaks to the five sockets that
it names. Messages are signed with the key in that file, by jupyter_client's own Session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.session import Session

from kernelbox.base._errors import InvalidInput
from kernelbox.server.jupyter._front_end_channels import FrontEndChannels
from kernelbox.server.jupyter._front_end_message import BadMessage, Channel, JupyterMessage

# Milliseconds that what has been sent has to reach the front ends when the program ends.
_LINGER = 1_000

_SOCKETS: dict[str, int] = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "iopub": zmq.PUB,
    "hb": zmq.REP,
}


@dataclass(frozen=True)
class ConnectionFile:
    """Where front ends expect the sockets, and the key that messages are signed with."""

    addresses: dict[str, str]
    key: bytes
    signature_scheme: str

    @classmethod
    def read(cls, path: str) -> ConnectionFile:
        """Reads the file that jupyter_client has written; raises InvalidInput."""
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            between = ":" if said["transport"] == "tcp" else "-"
            addresses = {
                name: f"{said['transport']}://{said['ip']}{between}{int(said[f'{name}_port'])}" for name in _SOCKETS
            }
            return cls(addresses, said["key"].encode(), said.get("signature_scheme", "hmac-sha256"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
            raise InvalidInput("the connection file", path, f"it cannot be used ({exc})") from exc


class Sockets:
    """The five sockets of a kernel, and the front ends behind them."""

    def __init__(self, file: ConnectionFile) -> None:
        self._session = Session(key=file.key, signature_scheme=file.signature_scheme)
        self._context = zmq.asyncio.Context()
        self._sockets = {name: self._context.socket(kind) for name, kind in _SOCKETS.items()}
        self._front_ends: dict[bytes, _FrontEnd] = {}
        for name, socket in self._sockets.items():
            socket.linger = _LINGER
            socket.bind(file.addresses[name])

    async def serve(self, channels: FrontEndChannels) -> None:
        """Gives requests to the channels, and sends what they say, until it is cancelled."""
        channels.attach(_FrontEnd(self, None))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._echo())
            for name in ("shell", "control", "stdin"):
                group.create_task(self._receive(name, channels))

    async def send(self, message: JupyterMessage, identity: bytes) -> None:
        """Sends a message to one front end, or, on iopub, to all that listen."""
        header = {**message.header, "msg_type": message.kind}
        whole = {"header": header, "parent_header": message.parent, "metadata": message.metadata}
        frames = self._session.serialize({**whole, "content": message.content, "msg_type": message.kind}, identity)
        await self._sockets[message.channel].send_multipart([*frames, *message.buffers])

    def close(self) -> None:
        self._context.destroy()

    async def _receive(self, name: Channel, channels: FrontEndChannels) -> None:
        while True:
            frames = await self._sockets[name].recv_multipart()
            try:
                identities, rest = self._session.feed_identities(frames)
                read = self._session.deserialize(rest)
                message = _read(name, read)
            except (ValueError, TypeError, KeyError, BadMessage):
                continue  # not signed with the key, or not a message
            identity = b"".join(identities[:1])
            channels.take(self._front_ends.setdefault(identity, _FrontEnd(self, identity)), message)

    async def _echo(self) -> None:
        """Tells front ends that this process is there."""
        socket = self._sockets["hb"]
        while True:
            await socket.send_multipart(await socket.recv_multipart())


def _read(channel: Channel, said: dict[str, Any]) -> JupyterMessage:
    header = {**said["header"], "date": str(said["header"].get("date", ""))}
    parent = {**said["parent_header"], "date": str(said["parent_header"].get("date", ""))}
    buffers = tuple(bytes(buffer) for buffer in said.get("buffers", ()))
    return JupyterMessage.read(channel, [header, parent, said["metadata"], said["content"]], buffers)


class _FrontEnd:
    """One front end, for its replies and questions; without an identity all of them, behind iopub."""

    def __init__(self, sockets: Sockets, identity: bytes | None) -> None:
        self._sockets = sockets
        self._identity = identity

    async def send(self, message: JupyterMessage) -> None:
        await self._sockets.send(message, message.kind.encode() if self._identity is None else self._identity)


async def until_the_end(serving: asyncio.Future[None], asked_to_end: asyncio.Event, parent: int | None) -> None:
    """Waits until a signal or a front end asks us to end, or the process that started us has ended."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked_to_end.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # front ends interrupt by a message
    lifeline = _open_lifeline(parent)
    if lifeline >= 0:
        loop.add_reader(lifeline, asked_to_end.set)
    ending: asyncio.Future[Any] = asyncio.ensure_future(asked_to_end.wait())
    try:
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        if lifeline >= 0:
            loop.remove_reader(lifeline)
            os.close(lifeline)


def _open_lifeline(pid: int | None) -> int:
    """Returns a descriptor that shows the end of a process, -1 where there is none to watch."""
    if pid is not None and hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return -1
