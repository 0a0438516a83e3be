"""Jupyter's messages, as front ends and kernels send them (jupyter-client.readthedocs.io, "Messaging in Jupyter")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Channel = Literal["shell", "control", "stdin", "iopub"]

# Of the protocol that is spoken here.
PROTOCOL_VERSION = "5.4"

# How times of UTC are written; jupyter_server takes no other form.
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"

CHANNELS: tuple[Channel, ...] = ("shell", "control", "stdin", "iopub")

# Characters of a message's kind and id; Jupyter's have 50 at most.
_LONGEST_NAME = 256


class BadMessage(ValueError):
    """Raised when a front end sends something that is not a message."""


@dataclass(frozen=True, slots=True)
class JupyterMessage:
    """One message on one channel; `parent` is the header of the request that it belongs to."""

    channel: Channel
    header: dict[str, Any]
    parent: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()

    @property
    def kind(self) -> str:
        kind: str = self.header["msg_type"]
        return kind

    @property
    def id(self) -> str:
        message_id: str = self.header["msg_id"]
        return message_id

    @classmethod
    def read(cls, channel: object, parts: list[Any], buffers: tuple[bytes, ...] = ()) -> JupyterMessage:
        """Returns the message that a front end has sent: header, parent header, metadata, content."""
        if channel not in CHANNELS:
            raise BadMessage(f"there is no channel {channel!r:.60}")
        if not all(isinstance(part, dict) for part in parts):
            raise BadMessage("header, parent_header, metadata and content must be objects")
        header = parts[0]
        for name in ("msg_type", "msg_id"):
            if not isinstance(header.get(name), str) or not 0 < len(header[name]) <= _LONGEST_NAME:
                raise BadMessage(f"the header has no {name}")
        parent, metadata, content = parts[1:]
        return cls(channel, header, parent, metadata, content, buffers)


class Author:
    """Writes the messages of one kernel; `clock` returns the time as Jupyter writes it."""

    def __init__(self, session: str, clock: Callable[[], str]) -> None:
        self._session = session
        self.clock = clock
        self._count = 0

    def write(
        self,
        channel: Channel,
        kind: str,
        content: dict[str, Any],
        parent: dict[str, Any] | None = None,
        *,
        metadata: dict[str, Any] | None = None,
        buffers: tuple[bytes, ...] = (),
    ) -> JupyterMessage:
        """Returns a new message; `parent` is the header of the request that it belongs to."""
        self._count += 1
        header = {
            "msg_id": f"{self._session}_{self._count}",
            "msg_type": kind,
            "session": self._session,
            "username": "kernelbox",
            "date": self.clock(),
            "version": PROTOCOL_VERSION,
        }
        return JupyterMessage(channel, header, parent or {}, metadata or {}, content, buffers)

    def status(self, state: str, parent: dict[str, Any] | None = None) -> JupyterMessage:
        """Returns what tells every front end the state of the kernel: busy, idle, restarting or dead."""
        return self.write("iopub", "status", {"execution_state": state}, parent)
