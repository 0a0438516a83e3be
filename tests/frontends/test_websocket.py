"""Jupyter's messages as WebSocket frames, in both forms, and what is no such frame."""

from __future__ import annotations

import importlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelbox.server.jupyter._front_end_message import CHANNELS, Author, BadMessage, JupyterMessage
from kernelbox.server.jupyter._websocket_codec import V1, CodecV1, PlainCodec, codec_for

# Without annotations.
base: Any = importlib.import_module("jupyter_server.services.kernels.connection.base")

text = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(text, values, max_size=3)
untimed = settings(deadline=None, max_examples=50)
headers = st.builds(
    lambda more, kind, key: {**more, "msg_type": kind, "msg_id": key},
    objects,
    st.text(min_size=1, max_size=20),
    st.text(min_size=1, max_size=20),
)
messages = st.builds(
    JupyterMessage,
    st.sampled_from(CHANNELS),
    headers,
    objects,
    objects,
    objects,
    st.lists(st.binary(max_size=30), max_size=3).map(tuple),
)


@untimed
@given(messages)
def test_what_is_written_is_read_again(message: JupyterMessage) -> None:
    for codec in (CodecV1(), PlainCodec()):
        assert codec.decode(codec.encode(message)) == message


@untimed
@given(messages)
def test_v1_is_what_jupyter_server_reads_and_writes(message: JupyterMessage) -> None:
    frame = CodecV1().encode(message)
    channel, parts = base.deserialize_msg_from_ws_v1(frame)
    assert channel == message.channel
    assert [json.loads(part) for part in parts[:4]] == [
        message.header,
        message.parent,
        message.metadata,
        message.content,
    ]
    assert tuple(map(bytes, parts[4:])) == message.buffers
    assert CodecV1().decode(base.serialize_msg_to_ws_v1(parts, channel)) == message


@untimed
@given(messages)
def test_the_older_form_is_what_jupyter_server_reads_and_writes(message: JupyterMessage) -> None:
    frame = PlainCodec().encode(message)
    whole = base.deserialize_binary_message(frame) if isinstance(frame, bytes) else json.loads(frame)
    assert (whole["channel"], whole["header"], whole["content"]) == (message.channel, message.header, message.content)
    assert tuple(map(bytes, whole["buffers"])) == message.buffers
    if message.buffers:
        theirs = {
            "header": message.header,
            "parent_header": message.parent,
            "metadata": message.metadata,
            "content": message.content,
            "channel": message.channel,
            "buffers": list(message.buffers),
        }
        assert PlainCodec().decode(base.serialize_binary_message(theirs)) == message


def test_the_newer_form_is_chosen_when_it_is_offered() -> None:
    assert codec_for(["other", V1])[0] == V1
    assert isinstance(codec_for([V1])[1], CodecV1)
    assert codec_for(["other"])[0] is None
    assert isinstance(codec_for([])[1], PlainCodec)


def test_a_message_without_a_channel_is_for_the_shell() -> None:
    frame = json.dumps({"header": {"msg_type": "x", "msg_id": "1"}, "content": {}})
    assert PlainCodec().decode(frame).channel == "shell"


def v1(*parts: bytes) -> bytes:
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


GOOD = b'{"msg_type": "x", "msg_id": "1"}'


@pytest.mark.parametrize(
    "frame",
    [
        "text",
        b"",
        b"\x00" * 7,
        b"\x00" * 8,
        b"\xff" * 64,
        struct.pack("<3Q", 2, 24, 9999),
        struct.pack("<3Q", 2, 24, 0),
        struct.pack("<2Q", 2**40, 16),
        v1(b"shell", GOOD, b"{}", b"{}"),
        v1(b"iopsub", GOOD, b"{}", b"{}", b"{}"),
        v1(b"\xff", GOOD, b"{}", b"{}", b"{}"),
        v1(b"shell", b"{}", b"{}", b"{}", b"{}"),
        v1(b"shell", GOOD, b"{}", b"{}", b"[]"),
        v1(b"shell", GOOD, b"{}", b"{}", b"{"),
        v1(b"shell", GOOD, b"{}", b"{}", b"[" * 100_000),
        v1(b"shell", b'{"msg_type": 5, "msg_id": "1"}', b"{}", b"{}", b"{}"),
        v1(b"shell", b'{"msg_type": "x", "msg_id": ""}', b"{}", b"{}", b"{}"),
        v1(b"shell", json.dumps({"msg_type": "x", "msg_id": "1" * 257}).encode(), b"{}", b"{}", b"{}"),
    ],
    ids=lambda frame: repr(frame)[:40],
)
def test_what_is_no_frame_of_v1_is_refused(frame: str | bytes) -> None:
    with pytest.raises(BadMessage):
        CodecV1().decode(frame)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{",
        "[]",
        "5",
        '{"header": 1}',
        '{"header": {"msg_type": "x"}}',
        '{"header": {"msg_type": "x", "msg_id": "1"}, "channel": ["shell"]}',
        '{"header": {"msg_type": "x", "msg_id": "1"}, "content": null}',
        "[" * 100_000,
        b"",
        b"\x00" * 4,
        struct.pack("!2I", 1, 9),
        struct.pack("!3I", 2, 12, 8) + b"{}",
    ],
    ids=lambda frame: repr(frame)[:40],
)
def test_what_is_no_frame_of_the_older_form_is_refused(frame: str | bytes) -> None:
    with pytest.raises(BadMessage):
        PlainCodec().decode(frame)


def test_halves_of_characters_make_no_frame_that_is_not_utf_8() -> None:
    message = Author("s", lambda: "now").write("iopub", "stream", {"text": "\ud800"})
    CodecV1().encode(message).partition(b"iopub")[2].decode()
    frame = PlainCodec().encode(message)
    assert isinstance(frame, str)
    frame.encode()


def test_each_message_of_an_author_has_an_id_of_its_own() -> None:
    author = Author("s", lambda: "2026-01-01T00:00:00Z")
    written: list[Any] = [author.write("iopub", "stream", {}) for _ in range(3)]
    assert len({message.id for message in written}) == 3
    assert {message.header["session"] for message in written} == {"s"}
