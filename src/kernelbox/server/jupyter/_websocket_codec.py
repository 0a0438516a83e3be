"""Jupyter's messages as WebSocket frames: the subprotocol `v1.kernel.websocket.jupyter.org`, and the older JSON.

In v1 a frame is a list of 64-bit little-endian offsets, their number first, and the parts that they separate: the
channel, four parts of JSON, the buffers. The older form is JSON text; a message with buffers is a binary frame of
32-bit big-endian offsets, the JSON and the buffers. (jupyter-server.readthedocs.io, "WebSocket kernel wire protocols")
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

from kernelbox.server.jupyter._front_end_message import BadMessage, JupyterMessage
from kernelbox.wire._json import dump, load

V1 = "v1.kernel.websocket.jupyter.org"

# How each form writes a number: for `struct`, one character for the order of the bytes and one for the size.
_OF_V1, _OLDER = "<Q", "!I"

# Parts of a message: more buffers than a comm message may have are not looked at.
_MOST_PARTS = 10_100


def codec_for(subprotocols: list[str]) -> tuple[str | None, CodecV1 | PlainCodec]:
    """Returns the subprotocol to accept of those that a front end offers, and its form."""
    return (V1, CodecV1()) if V1 in subprotocols else (None, PlainCodec())


class CodecV1:
    """The subprotocol v1."""

    def encode(self, message: JupyterMessage) -> bytes:
        parts = [message.channel.encode(), *map(dump, _json_parts(message)), *message.buffers]
        return _join(parts, _OF_V1)

    def decode(self, frame: str | bytes) -> JupyterMessage:
        if isinstance(frame, str):
            raise BadMessage("text frames are not messages of the subprotocol v1")
        channel, *parts = _split(frame, _OF_V1)
        if len(parts) < 4:
            raise BadMessage("a frame of v1 has a channel and four parts at least")
        name = channel.decode("utf-8", "replace")
        return JupyterMessage.read(name, [_load(part) for part in parts[:4]], tuple(parts[4:]))


class PlainCodec:
    """The older form."""

    def encode(self, message: JupyterMessage) -> str | bytes:
        names = ("header", "parent_header", "metadata", "content")
        whole: dict[str, Any] = dict(zip(names, _json_parts(message), strict=True))
        whole |= {"msg_id": message.id, "msg_type": message.kind, "channel": message.channel, "buffers": []}
        if not message.buffers:
            return dump(whole).decode()
        return _join([dump(whole), *message.buffers], _OLDER)

    def decode(self, frame: str | bytes) -> JupyterMessage:
        if isinstance(frame, str):
            first, buffers = frame.encode("utf-8", "surrogatepass"), []
        else:
            first, *buffers = _split(frame, _OLDER)
        whole = _load(first)
        if not isinstance(whole, dict):
            raise BadMessage("a message is an object")
        parts = [whole.get(name, {}) for name in ("header", "parent_header", "metadata", "content")]
        return JupyterMessage.read(whole.get("channel", "shell"), parts, tuple(buffers))


def _join(parts: list[bytes], form: str) -> bytes:
    """Returns a frame that begins with the number of its offsets, and the offsets.

    The last offset of v1 is the end of the last part; the older form leaves that to the frame.
    """
    count = len(parts) if form == _OLDER else len(parts) + 1
    offsets = [struct.calcsize(form) * (count + 1)]
    for part in parts[: count - 1]:
        offsets.append(offsets[-1] + len(part))
    return b"".join([struct.pack(f"{form[0]}{count + 1}{form[1]}", count, *offsets), *parts])


def _split(frame: bytes, form: str) -> list[bytes]:
    """Returns the parts of a frame."""
    number = struct.Struct(form)
    if len(frame) < number.size:
        raise BadMessage("a frame without offsets")
    (count,) = number.unpack_from(frame)
    if not 0 < count <= _MOST_PARTS or (count + 1) * number.size > len(frame):
        raise BadMessage(f"a frame with {count} offsets")
    offsets = list(struct.unpack_from(f"{form[0]}{count}{form[1]}", frame, number.size))
    if form == _OLDER:
        offsets.append(len(frame))
    if offsets[0] != (count + 1) * number.size or offsets != sorted(offsets) or offsets[-1] > len(frame):
        raise BadMessage("the offsets of a frame lead out of it")
    return [frame[start:end] for start, end in pairwise(offsets)]


def _json_parts(message: JupyterMessage) -> list[dict[str, Any]]:
    return [message.header, message.parent, message.metadata, message.content]


def _load(part: bytes) -> Any:
    try:
        return load(part)
    except ValueError as exc:
        raise BadMessage(f"a part that is not JSON: {part[:60]!r}") from exc
