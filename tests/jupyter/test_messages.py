"""Jupyter's protocol, against jupyter_client's own implementation of it."""

from __future__ import annotations

from typing import Any

import pytest
from jupyter_client.session import Session

from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage, SignedCodec

KEY = "a key that only we know"


def test_jupyter_client_understands_our_requests() -> None:
    content = {"code": "print('é \U0001f600')", "silent": False}
    frames = SignedCodec(KEY).encode("execute_request", content, "the-id")
    session = Session(key=KEY.encode())
    identities, parts = session.feed_identities(frames)
    message = session.deserialize(parts)
    assert identities == []
    assert message["content"] == content
    assert (message["header"]["msg_id"], message["header"]["msg_type"]) == ("the-id", "execute_request")


@pytest.mark.parametrize("identities", [[], [b"kernel.stream"], [b"\x00\xff", b"topic"]])
def test_we_understand_what_jupyter_client_sends(identities: list[bytes]) -> None:
    frames = serialize({"name": "stdout", "text": "é \U0001f600"}, identities)
    message = SignedCodec(KEY).decode(frames)
    assert message is not None
    assert (message.kind, message.parent) == ("stream", "the-parent")
    assert message.content == {"name": "stdout", "text": "é \U0001f600"}


def test_a_message_signed_with_another_key_is_none() -> None:
    assert SignedCodec("another key").decode(serialize({"text": "forged"}, [])) is None


def test_a_message_that_was_changed_is_none() -> None:
    frames = serialize({"text": "accept"}, [])
    assert SignedCodec(KEY).decode([frame.replace(b"accept", b"reject") for frame in frames]) is None


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"<IDS|MSG>"],
        [b"noise", b"<IDS|MSG>", b"", b"{}", b"{}"],
        [b"<IDS|MSG>", b"\xff" * 64, b"{}", b"{}", b"{}", b"{}"],
    ],
)
def test_frames_that_are_no_message_are_none(frames: list[bytes]) -> None:
    assert SignedCodec(KEY).decode(frames) is None


@pytest.mark.parametrize("part", [b"", b"not json", b"[]", b"null", b"7", b'{"x": ' * 100_000])
@pytest.mark.parametrize("position", range(4))
def test_signed_nonsense_is_none_or_harmless(part: bytes, position: int) -> None:
    codec = SignedCodec(KEY)
    parts = [b'{"msg_type": "stream"}', b"{}", b"{}", b"{}"]
    parts[position] = part
    message = codec.decode([b"<IDS|MSG>", codec._sign(parts), *parts])
    assert message is None or isinstance(message.content, dict)


@pytest.mark.parametrize(
    "content",
    [
        b'{"x": ' * 100_000,
        b'{"x":' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"x":[' + b"[]," * 3_000_000 + b"0]}",
        b'{"x":' + b"9" * 4_000 + b"}",
        b'"' + b"x" * (129 * 1024 * 1024) + b'"',
        b"[]",
        b"not json",
    ],
    ids=["not closed", "deep", "many", "digits", "large", "no object", "no json"],
)
def test_a_content_that_is_not_read_leaves_a_message_that_says_so(content: bytes) -> None:
    codec = SignedCodec(KEY)
    parts = [b'{"msg_type": "status"}', b'{"msg_id": "a"}', b"{}", content]
    message = codec.decode([b"<IDS|MSG>", codec._sign(parts), *parts])
    assert message == KernelMessage("status", "a", {}, unread=True)


def test_a_content_of_50_mb_is_read() -> None:
    codec = SignedCodec(KEY)
    parts = [b'{"msg_type": "stream"}', b"{}", b"{}", b'{"text": "' + b"x," * 25_000_000 + b'"}']
    message = codec.decode([b"<IDS|MSG>", codec._sign(parts), *parts])
    assert message is not None
    assert len(message.text("text")) == 50_000_000


def test_numbers_that_json_has_no_word_for_become_their_text() -> None:
    codec = SignedCodec(KEY)
    parts = [b'{"msg_type": "x"}', b"{}", b"{}", b'{"a": NaN, "b": -Infinity, "c": 1e999}']
    message = codec.decode([b"<IDS|MSG>", codec._sign(parts), *parts])
    assert message is not None
    assert message.content == {"a": "nan", "b": "-inf", "c": "inf"}


def test_halves_of_characters_become_something_that_can_be_written() -> None:
    codec = SignedCodec(KEY)
    parts = [b'{"msg_type": "stream"}', b"{}", b"{}", b'{"text": "a\\ud800b", "list": ["\\udc00"]}']
    message = codec.decode([b"<IDS|MSG>", codec._sign(parts), *parts])
    assert message is not None
    assert message.content == {"text": "a\\ud800b", "list": ["\\udc00"]}


def serialize(content: dict[str, Any], identities: list[bytes]) -> list[bytes]:
    session = Session(key=KEY.encode())
    message = session.msg("stream", content, parent={"msg_id": "the-parent"})
    message["parent_header"] = {"msg_id": "the-parent"}
    frames: list[bytes] = session.serialize(message, ident=identities)
    return frames
