"""Frames: every message survives the way, and bytes that are no messages can do nothing but end the connection."""

from __future__ import annotations

import copy
import inspect
import json
import math
import re
import struct
import sys
import tracemalloc
from dataclasses import fields
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client import jsonutil
from tests.support.strategies import (
    HOSTILE,
    KINDS,
    Items,
    Map,
    Text,
    circular,
    doubling,
    endless,
    hostile_values,
    json_values,
    messages,
    messages_of,
    nested,
    pieces,
    untimed,
)

from kernelbox.wire import _messages as m
from kernelbox.wire._framing import MAX_FRAME, MAX_TEXT, Decoder, ProtocolError, encode

LENGTHS = struct.Struct("!II")
UINT32_MAX = 2**32 - 1

EXAMPLES: list[m.Message] = [
    m.Execute("a", "{}", "comm", buffers=[b"one", b"", b"two"]),
    m.Interrupt("a"),
    m.Started("a", 1),
    m.Watch(),
    m.Begun("a", "1", "python", 1, False, "p"),
    m.Output("a", "stdout", "hello"),
    m.Display("a", "display_data", {"text/plain": "x"}, {}, blobs={"image/png": b"PNG"}),
    m.Clear("a", True),
    m.Ask("a", 1, "server", "tool", {"x": 1}),
    m.Answer("a", 1, True, "", "f", "s", b"{}"),
    m.Withdraw("a", 1),
    m.Comm("a", "comm_msg", {"y": 2}, [b"\x00\xff", b""]),
    m.Payload("a", {"source": "page", "start": 0}),
    m.Done("a", "ok"),
    m.Query("a", "complete", {"code": "x."}),
    m.Reply("a", {"z": 3}),
    m.Farewell("bye"),
    m.Spawn("k", "/d", "/c", 0o22),
    m.Spawned(1, 2),
    m.Introduced("k"),
    m.Refused("no"),
    m.Copy("a", ["t"]),
    m.Foster("t", "k", "l", "/d"),
    m.Agreed(),
    m.Release("k", 1),
    m.Measure("k"),
    m.Measured({"1": 2}),
    m.Adopt("t"),
    m.Adopted("k", "/d"),
    m.Thaw("t"),
]

# JSON values that a field must not take, by its annotation. Booleans are not numbers here, nor the other way round.
WRONG: dict[str, list[Any]] = {
    "str": [None, 1, 1.5, True, ["x"], {"x": "y"}],
    "Language": [None, 1, True, "", "ruby", "Python", ["bash"], {}],
    "int": [None, "1", 1.0, True, [1], {}],
    "bool": [None, "true", 0, 1, 1.0, [True], {}],
    "float": [None, "1", True, [1.0], {}],
    "int | None": ["1", 1.0, False, [1], {}],
    "list[str]": [None, "x", 1, {"x": "y"}, [1], ["x", None]],
    "dict[str, str]": [None, "x", 1, ["x"], {"x": 1}, {"x": "y", "z": None}],
    "dict[str, int]": [None, "x", 1, ["x"], {"x": "y"}, {"x": 1.5}, {"x": True}],
    "dict[str, float]": [None, "x", 1, ["x"], {"x": "y"}, {"x": 1, "z": None}, {"x": True}],
    "list[bytes]": [None, "x", 1, ["x"], [None], [1.0], [True], [-1], {"x": 0}],
    "dict[str, bytes]": [None, "x", 1, ["x"], {"x": "y"}, {"x": None}, {"x": 1.0}, {"x": True}, {"x": -1}],
    "dict[str, Any]": [None, "x", 1, True, ["x"], [["x", 1]]],
    "dict[str, list[str]] | None": ["x", 1, ["x"], {"x": "y"}, {"x": [1]}, {"x": None}],
    "Any": [],
}


def frame(header: object, binary: bytes = b"") -> bytes:
    """Returns a frame with any header, without the help of `encode`."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return LENGTHS.pack(len(raw), len(binary)) + raw + binary


def parts_of(message: m.Message) -> tuple[list[Any], bytes]:
    """Returns the JSON array and the raw bytes of a message's frame."""
    data = encode(message)
    header, binary = LENGTHS.unpack_from(data)
    assert len(data) == LENGTHS.size + header + binary
    return json.loads(data[8 : 8 + header]), data[8 + header :]


def decode(data: bytes) -> list[m.Message]:
    return Decoder().feed(data)


def assert_harmless(data: bytes) -> None:
    """Feeds hostile bytes: messages, waiting and ProtocolError are allowed, any other exception fails the test."""
    decoder = Decoder()
    try:
        received = decoder.feed(data)
    except ProtocolError:
        assert decoder.pending == 0
        return
    assert all(type(message) in KINDS for message in received)
    assert decoder.pending <= len(data)


# -- the way there ---------------------------------------------------------------------------------------------


def test_the_examples_name_every_message() -> None:
    assert [type(message) for message in EXAMPLES] == KINDS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_arrives_as_it_was_sent(kind: type[m.Message]) -> None:
    @untimed
    @given(messages_of(kind))
    def check(message: m.Message) -> None:
        decoder = Decoder()
        (received,) = decoder.feed(encode(message))
        assert received == message
        assert type(received) is kind
        assert decoder.pending == 0

    check()


@untimed
@given(messages)
def test_encoding_leaves_the_message_as_it_was(message: m.Message) -> None:
    assert encode(message) == encode(message)


@pytest.mark.parametrize(
    ("message", "header", "binary"),
    [
        (m.Clear("a", True), b'["Clear","a",true]', b""),
        (m.Output("a", "stdout", "é\n"), b'["Output","a","stdout"]', "é\n".encode()),
        (
            m.Display("a", "display_data", {}, {}, blobs={"image/png": b"\x89P", "x/y": b"", "image/gif": b"G"}),
            b'["Display","a","display_data",{},{},"",null,false,"",{"image/png":2,"x/y":0,"image/gif":1}]',
            b"\x89PG",
        ),
    ],
)
def test_a_frame_is_two_lengths_a_json_array_and_raw_bytes(message: m.Message, header: bytes, binary: bytes) -> None:
    assert encode(message) == len(header).to_bytes(4, "big") + len(binary).to_bytes(4, "big") + header + binary


@pytest.mark.parametrize("message", [m.Done("a", "ok"), m.Display("a", "display_data", {}, {})])
def test_default_values_are_never_shared_between_messages(message: m.Message) -> None:
    first, second = decode(encode(message) * 2)
    for name in first.__slots__:
        value = getattr(first, name)
        assert value is not getattr(second, name) or not isinstance(value, list | dict)


def test_a_lone_surrogate_in_written_text_arrives_as_the_escape_that_python_shows() -> None:
    (received,) = decode(encode(m.Output("a", "stdout", "x\ud800y")))
    assert received == m.Output("a", "stdout", "x\\ud800y")


def test_bytes_that_are_no_text_become_replacement_characters_in_an_output() -> None:
    (received,) = decode(frame(["Output", "a", "stdout"], b"a\xffb\xe2\x82"))
    assert received == m.Output("a", "stdout", "a\ufffdb\ufffd")


def test_a_float_field_takes_a_whole_number() -> None:
    (received,) = decode(encode(m.Spawn("k", "/d", "/c", 0, idle_timeout=3)))
    assert isinstance(received, m.Spawn)
    assert received.idle_timeout == 3


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (b"\x89PNG", "iVBORw=="),
        (date(2025, 1, 2), "2025-01-02"),
        (datetime(2025, 1, 2, 3, 4, tzinfo=UTC), "2025-01-02T03:04:00+00:00"),
        ((1, 2), [1, 2]),
        ({1}, [1]),
        (range(3), [0, 1, 2]),
        (Fraction(1, 2), 0.5),
        (numpy.int64(3), 3),
        (numpy.float32(0.5), 0.5),
        (numpy.array([1, 2]), [1, 2]),
        ([{"deep": {numpy.int8(1)}}], [{"deep": [1]}]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_has_no_form_for_is_sent_as_jupyter_sends_it(value: Any, form: Any) -> None:
    (received,) = decode(encode(m.Comm("a", "comm_msg", {"x": value})))
    assert received == m.Comm("a", "comm_msg", {"x": form})
    json_forms = json.loads(json.dumps(value, default=jsonutil.json_default))
    assert str(json_forms).replace("Z", "+00:00") == str(form)


@pytest.mark.parametrize("value", [object(), list, len, 1j])
def test_a_value_that_has_no_such_form_either_is_refused_by_the_sender(value: object) -> None:
    with pytest.raises(TypeError):
        encode(m.Comm("a", "comm_msg", {"x": value}))


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_cell_sends_is_a_frame_that_arrives_or_an_error_of_its_own(name: str) -> None:
    assert_sent_or_refused(HOSTILE[name]())


@untimed
@given(hostile_values)
def test_whatever_a_cell_puts_together_is_a_frame_that_arrives_or_an_error_of_its_own(value: Any) -> None:
    assert_sent_or_refused(value)


def assert_sent_or_refused(value: Any) -> None:
    content = {"x": value}
    for message in (m.Comm("a", "comm_msg", content), m.Ask("a", 1, "server", "tool", content), m.Reply("a", content)):
        try:
            data = encode(message)
        except (TypeError, ValueError, ZeroDivisionError):  # and no ProtocolError
            continue
        (received,) = decode(data)
        arrived = received.content if isinstance(received, m.Reply) else getattr(received, received.__slots__[-1])
        json.dumps(arrived, ensure_ascii=False, allow_nan=False).encode()
        assert copy.deepcopy(arrived) == arrived
        assert repr(arrived)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (Text("x"), "x"),
        (Map({"a": 1}), {"a": 1}),
        (Items([1]), [1]),
        (bytearray(b"\xff"), "/w=="),
        ({None: 1, True: 2, 3: 4, 5.5: 6}, {"null": 1, "true": 2, "3": 4, "5.5": 6}),
        (10**600, 10**600),
    ],
    ids=["nan", "-inf", "text", "map", "items", "bytes", "keys", "digits"],
)
def test_a_value_is_sent_as_what_it_holds_and_not_as_what_it_says(value: Any, form: Any) -> None:
    assert decode(encode(m.Comm("a", "comm_msg", {"x": value}))) == [m.Comm("a", "comm_msg", {"x": form})]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (circular(), "nested more than 100 levels deep, or in itself"),
        (nested(100), "nested more than 100 levels deep, or in itself"),
        (10**640, "more than 640 digits"),
        (doubling(), "more than 200,000 parts or 8,000,000 characters"),
        (endless(), "more than 200,000 parts or 8,000,000 characters"),
        (["x" * 5_000_000] * 2, "more than 200,000 parts or 8,000,000 characters"),
        (memoryview(bytes(7_000_000)), "more than 200,000 parts or 8,000,000 characters"),
    ],
    ids=["a circle", "depth", "digits", "doubling", "endless", "characters", "bytes"],
)
def test_the_error_of_a_value_that_cannot_be_sent_says_why(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        encode(m.Comm("a", "comm_msg", {"x": value}))


def test_a_frame_of_exactly_the_limit_is_sent_and_received() -> None:
    def image(size: int) -> m.Display:
        return m.Display("a", "display_data", {}, {}, blobs={"image/png": bytes(size)})

    overhead = len(encode(image(10_000_000))) - 10_000_000 - LENGTHS.size
    message = image(MAX_FRAME - overhead)
    assert decode(encode(message)) == [message]


@pytest.mark.parametrize(
    "message",
    [
        m.Output("a", "stdout", "x" * MAX_FRAME),
        m.Output("a", "stdout", "€" * (MAX_FRAME // 3)),
        m.Farewell("x" * MAX_FRAME),
        m.Display("a", "display_data", {}, {}, blobs={"a": bytes(MAX_FRAME // 2), "b": bytes(MAX_FRAME // 2)}),
    ],
    ids=["text", "text counted in bytes", "header", "blobs"],
)
def test_a_message_above_the_limit_is_refused_by_the_sender(message: m.Message) -> None:
    with pytest.raises(ProtocolError, match=rf"a {type(message).__name__} of [\d,]+ (bytes|characters) does not fit"):
        encode(message)


@pytest.mark.parametrize("wide", ["x", "é"])
def test_the_characters_of_a_message_are_counted_by_both_sides_and_not_its_bytes(wide: str) -> None:
    most = wide * 10_000_000 + "x" * (MAX_TEXT - 10_000_000 - len('["Farewell",""]'))
    assert decode(encode(m.Farewell(most))) == [m.Farewell(most)]
    with pytest.raises(ProtocolError, match=r"a Farewell of 36,000,001 characters does not fit"):
        encode(m.Farewell(most + "x"))
    with pytest.raises(ProtocolError, match="not a message"):
        decode(frame(f'["Farewell","{most}x"]'.encode()))


def test_an_output_has_at_most_what_a_kernel_can_have_read_at_once() -> None:
    most = 8 * 1024 * 1024
    assert decode(frame(["Output", "a", "stdout"], b"x" * most)) == [m.Output("a", "stdout", "x" * most)]
    with pytest.raises(ProtocolError, match=r"8,388,609 bytes; the limit is 8,388,608"):
        decode(frame(["Output", "a", "stdout"], b"x" * (most + 1)))


def test_the_keys_of_a_value_keep_their_order() -> None:
    header, _ = parts_of(m.Ask("a", 1, "s", "t", {"z": 1, "b": 2, "a": 3}))
    assert list(header[-1]) == ["z", "b", "a"]


def test_a_display_that_was_not_made_plain_is_refused_by_the_sender() -> None:
    with pytest.raises(TypeError, match="object is not JSON serializable"):
        encode(m.Display("a", "display_data", {"application/json": object()}, {}))


def test_a_message_that_is_refused_is_shown_by_its_beginning() -> None:
    with pytest.raises(ProtocolError) as refused:
        decode(frame(["Nonsense", "x" * 200]))
    assert str(refused.value) == f"not a message: {json.dumps(['Nonsense', 'x' * 200]).encode()[:80]!r}"


def test_a_protocol_error_is_a_connection_error() -> None:
    assert issubclass(ProtocolError, ConnectionError)


# -- pieces ----------------------------------------------------------------------------------------------------


@untimed
@given(st.lists(messages, max_size=5), st.data())
def test_messages_are_the_same_whatever_pieces_they_arrive_in(sent: list[m.Message], data: st.DataObject) -> None:
    stream = b"".join(map(encode, sent))
    decoder, received, fed = Decoder(), list[m.Message](), 0
    for piece in data.draw(pieces(stream)):
        received += decoder.feed(piece)
        fed += len(piece)
        assert decoder.pending == fed - sum(len(encode(message)) for message in received)
    assert received == sent
    assert decoder.pending == 0


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_frame_cut_anywhere_waits_for_the_rest(message: m.Message) -> None:
    data = encode(message)
    for cut in range(len(data)):
        decoder = Decoder()
        assert decoder.feed(data[:cut]) == []
        assert decoder.pending == cut
        assert decoder.feed(data[cut:]) == [message]
        assert decoder.pending == 0


def test_the_beginning_of_the_next_message_is_kept_when_one_is_complete() -> None:
    first, second = m.Clear("a", True), m.Output("b", "stderr", "text")
    decoder = Decoder()
    assert decoder.feed(encode(first) + encode(second)[:-1]) == [first]
    assert decoder.pending == len(encode(second)) - 1
    assert decoder.feed(encode(second)[-1:]) == [second]


def test_decoders_do_not_share_what_they_hold() -> None:
    Decoder().feed(b"\0\0\0")
    assert Decoder().pending == 0


# -- bytes that are no messages --------------------------------------------------------------------------------


@untimed
@given(st.binary(max_size=200))
def test_random_bytes_are_a_protocol_error_or_wait(data: bytes) -> None:
    assert_harmless(data)


@untimed
@given(st.binary(max_size=100), st.binary(max_size=20))
def test_random_bytes_in_a_well_formed_frame_are_a_protocol_error(header: bytes, binary: bytes) -> None:
    assert_harmless(frame(header, binary))


@untimed
@given(json_values, st.binary(max_size=20))
def test_any_json_in_a_well_formed_frame_is_a_protocol_error(header: Any, binary: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(frame(header, binary))


@untimed
@given(st.sampled_from(KINDS), st.lists(json_values, max_size=11), st.binary(max_size=20))
def test_any_fields_under_a_known_name_are_a_message_or_a_protocol_error(
    kind: type[m.Message], values: list[Any], binary: bytes
) -> None:
    assert_harmless(frame([kind.__name__, *values], binary))


@untimed
@given(messages, st.data())
def test_a_message_with_damaged_bytes_is_harmless(message: m.Message, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert_harmless(bytes(damaged))


@pytest.mark.parametrize(
    ("header", "binary"), [(MAX_FRAME + 1, 0), (0, MAX_FRAME + 1), (MAX_FRAME, 1), (UINT32_MAX, UINT32_MAX)]
)
def test_a_frame_that_announces_too_much_is_refused_before_it_comes(header: int, binary: int) -> None:
    decoder = Decoder()
    assert decoder.feed(LENGTHS.pack(header, binary)[:7]) == []
    with pytest.raises(ProtocolError, match=f"announces {header + binary:,} bytes"):
        decoder.feed(LENGTHS.pack(header, binary)[7:])


@pytest.mark.parametrize(("header", "binary"), [(MAX_FRAME, 0), (0, MAX_FRAME), (MAX_FRAME - 1, 1)])
def test_a_frame_that_announces_all_that_is_allowed_is_waited_for(header: int, binary: int) -> None:
    decoder = Decoder()
    assert decoder.feed(LENGTHS.pack(header, binary)) == []
    assert decoder.pending == 8


def test_a_frame_that_announces_too_much_is_refused_behind_good_messages_too() -> None:
    with pytest.raises(ProtocolError):
        decode(encode(m.Clear("a", True)) + LENGTHS.pack(UINT32_MAX, 0))


@pytest.mark.parametrize("bad", [LENGTHS.pack(UINT32_MAX, 0), frame(b"{}"), frame(["Nonsense"])])
def test_a_stream_that_was_no_messages_stays_refused_and_nothing_more_of_it_is_kept(bad: bytes) -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError) as first:
        decoder.feed(bad + bytes(1000))
    for _ in range(3):
        with pytest.raises(ProtocolError, match=re.escape(str(first.value))):
            decoder.feed(encode(m.Clear("a", True)))
        assert decoder.pending == 0


@pytest.mark.parametrize(
    "name",
    ["", "Nonsense", "Message", "clear", "Clear ", "__class__", None, 0, 1.5, True, ["Clear"], {"Clear": "a"}],
)
def test_a_name_that_no_message_has_is_refused(name: object) -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        decode(frame([name, "a", True]))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b" ",
        b"[",
        b"[]",
        b"{}",
        b"null",
        b"true",
        b"0",
        b'"Refused"',
        b"Refused",
        b'["Refused","x"',
        b"\xff\xfe",
        b"\0",
    ],
)
def test_a_header_that_is_no_array_with_a_name_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        decode(frame(header))


def test_an_object_whose_keys_read_like_a_message_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode(frame({"Refused": 1, "reason": 2}))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_with_fields_too_few_or_too_many_is_refused(message: m.Message) -> None:
    header, binary = parts_of(message)
    assert decode(frame(header, binary)) == [message]
    kind, blobs = header[0], {"image/png": len(binary)}
    complaint = rf"{kind} has \d+ fields, not {len(message.__slots__)}|\.blobs|\.buffers|no raw bytes"
    for count in range(1, len(header)):
        with pytest.raises(ProtocolError, match=complaint):
            decode(frame(header[:count], binary))
    for extra in (None, "x", 1, True, {}, blobs):
        with pytest.raises(ProtocolError, match=complaint):
            decode(frame([*header, extra], binary))
    if isinstance(message, m.Display):
        with pytest.raises(ProtocolError, match="Display has 8 fields, not 9"):
            decode(frame([*header[:-2], blobs], binary))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_field_of_the_wrong_type_is_refused_by_name(message: m.Message) -> None:
    header, binary = parts_of(message)
    for position, spec in enumerate(fields(message), start=1):  # type: ignore[arg-type]  # all are dataclasses
        if position == len(header):
            assert isinstance(
                message, m.Output | m.Answer | m.Query | m.Reply
            )  # its last field is the raw bytes, of no wrong type
            continue
        for wrong in WRONG[str(spec.type)]:
            hostile = [*header[:position], wrong, *header[position + 1 :]]
            with pytest.raises(ProtocolError, match=rf"{type(message).__name__}\.{spec.name}\b"):
                decode(frame(hostile, binary))


@pytest.mark.parametrize(
    "header",
    [
        ["Output", "a", "stdin"],
        ["Output", "a", ""],
        ["Display", "a", "stream", {}, {}, "", None, False, "", {}],
        ["Display", "a", "clear_output", {}, {}, "", None, False, "", {}],
        ["Comm", "a", "comm_info", {}, []],
        ["Done", "a", "success", None, "", "", [], False, False, None, None],
        ["Done", "a", "", None, "", "", [], False, False, None, None],
        ["Done", "a", "ok", None, "", "", [], False, False, {"moved": []}, None],
    ],
)
def test_a_word_outside_a_closed_set_is_refused(header: list[Any]) -> None:
    with pytest.raises(ProtocolError, match=r"\.(name|kind|msg_type|status|changed) cannot be"):
        decode(frame(header))


@pytest.mark.parametrize(
    "header",
    [
        ["Started", "x" * 33, 1],
        ["Clear", "é", True],
        ["Display", "a", "display_data", {f"a/{n}": 0 for n in range(101)}, {}, "", None, False, "", {}],
        ["Display", "a", "display_data", {"a" * 256: 0}, {}, "", None, False, "", {}],
        ["Display", "a", "display_data", {}, {}, "", None, False, "", {f"a/{n}": 0 for n in range(101)}],
        ["Display", "a", "display_data", {}, {}, "d" * 1001, None, False, "", {}],
        ["Comm", "a", "comm_msg", {}, [0] * 10_001],
        ["Ask", "a", 1, "s" * 1001, "t", {}],
        ["Ask", "a", 1, "s", "t" * 1001, {}],
        ["Done", "a", "error", None, "E" * 1001, "", [], False, False, None, None],
        ["Done", "a", "ok", None, "", "", [], False, False, {"added": ["n"] * 2001}, None],
        ["Done", "a", "ok", None, "", "", [], False, False, {"added": ["n" * 257]}, None],
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_field_that_holds_more_than_a_guest_puts_into_it_is_refused(header: list[Any]) -> None:
    with pytest.raises(ProtocolError, match=r"cannot be"):
        decode(frame(header))


@pytest.mark.parametrize(
    "message",
    [
        m.Ask("a", 1, "s", "t" * 1001, {}),
        m.Comm("a", "comm_info", {}),
        m.Comm("a", "comm_msg", 5),  # type: ignore[arg-type]  # this is the point
        m.Reply("a", []),  # type: ignore[arg-type]  # as above
    ],
    ids=lambda message: repr(message)[:60],
)
def test_what_the_host_would_refuse_is_an_error_where_a_cell_sends_it(message: m.Message) -> None:
    with pytest.raises(ValueError, match=r"cannot be"):
        encode(message)


@pytest.mark.parametrize("execution_id", ["", "x" * 33, "é", "a\0", "\ud800"])
def test_a_request_whose_id_does_not_fit_the_state_file_is_refused(execution_id: str) -> None:
    with pytest.raises(ProtocolError, match=r"Execute\.id cannot be"):
        decode(encode(m.Execute(execution_id, "1")))


WITH_BYTES = m.Output | m.Answer | m.Query | m.Reply | m.Display


@pytest.mark.parametrize("message", [x for x in EXAMPLES if not isinstance(x, WITH_BYTES)], ids=repr)
def test_raw_bytes_behind_a_message_that_has_none_are_refused(message: m.Message) -> None:
    with pytest.raises(ProtocolError, match=type(message).__name__):
        decode(frame(parts_of(message)[0], b"x"))


NINES = 10**4300 - 1  # as many digits as Python reads; a sum of two has one more than it writes


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"a": 0},
        {"a": 4},
        {"a": 6},
        {"a": 5, "b": 1},
        {"a": 6, "b": -1},
        {"a": -1, "b": 6},
        {"a": 5.0},
        {"a": True, "b": 4},
        {"a": None},
        {"a": "5"},
        {"a": [5]},
        {"a": UINT32_MAX},
        {"a": NINES},
        {"a": NINES, "b": NINES},
        [5],
        5,
        "hello",
        None,
    ],
    ids=lambda sizes: json.dumps(sizes)[:30],
)
def test_lengths_of_blobs_that_lie_are_refused(sizes: object) -> None:
    with pytest.raises(ProtocolError):
        decode(frame(["Display", "a", "display_data", {}, {}, "", None, False, "", sizes], b"hello"))


@pytest.mark.parametrize("sizes", [[4], [5, 1], [-1, 6], [5.0], ["5"], [UINT32_MAX], [NINES], {"a": 5}, 5, None])
@pytest.mark.parametrize("header", [["Comm", "a", "comm_msg", {}], parts_of(m.Execute("a", "{}", "comm"))[0][:-1]])
def test_lengths_of_buffers_that_lie_are_refused(header: list[Any], sizes: object) -> None:
    with pytest.raises(ProtocolError):
        decode(frame([*header, sizes], b"hello"))


def test_halves_of_characters_from_a_guest_arrive_as_the_escapes_that_python_shows() -> None:
    sent = m.Display("a", "display_data", {"a/\ud800": ["\udc00\\"]}, {"\udfff": 1}, "\ud83d", blobs={"\ud801": b""})
    escaped = m.Display(
        "a", "display_data", {"a/\\ud800": ["\\udc00\\"]}, {"\\udfff": 1}, "\\ud83d", blobs={"\\ud801": b""}
    )
    assert decode(encode(sent)) == [escaped]
    assert decode(encode(m.Done("a", "error", evalue="\ud800"))) == [m.Done("a", "error", evalue="\\ud800")]
    text = "\ud55c\uad6d \N{GRINNING FACE} \\ud83d"
    assert decode(encode(m.Farewell(text))) == [m.Farewell(text)]


@pytest.mark.parametrize("half", [b"\\ud800", b"\\uDC00", b"\xed\xa0\x80"])
@pytest.mark.parametrize(
    "header",
    [
        b'["Farewell","%s"]',
        b'["Reply","a",{"x":[{"%s":1}]}]',
        b'["Display","a","display_data",{},{"m":"%s"},"",null,false,"",{}]',
        b'["Display","a","display_data",{},{},"",null,false,"",{"%s":0}]',
    ],
)
def test_halves_of_characters_that_come_as_such_from_a_guest_are_refused(header: bytes, half: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        decode(frame(header % half))


@pytest.mark.parametrize("depth", [1, 10, 99])
def test_json_nested_as_deep_as_people_nest_it_arrives(depth: int) -> None:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    (received,) = decode(encode(m.Reply("a", {"x": value})))
    assert received == m.Reply("a", {"x": value})


@pytest.mark.parametrize(
    "template",
    [
        '["Query","a","complete",%s]',
        '["Comm","a","comm_msg",{"x":%s}]',
        '["Comm","a",%s,{}]',
        '["Display","a","display_data",{},{},"",null,false,"",%s]',
        '["Display","a","display_data",{},{},"",null,false,"",{"x":%s}]',
        '["Done","a","ok",null,"","",[%s],false,false,null,null]',
        "[%s]",
        "%s",
    ],
)
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_json_of_any_depth_is_harmless(template: str, brackets: str) -> None:
    opening, closing = ("[", "]") if brackets == "[]" else ('{"x":', "}")
    for depth in (*range(900, 1010), 3_000, 100_000):
        nested = opening * depth + "0" + closing * depth
        assert_harmless(frame((template % nested).encode()))


@pytest.mark.parametrize("opening", [b"[", b'{"x":', b'[{"[]":', b'["\\"[[",'])
def test_json_nested_more_deeply_than_a_guest_nests_it_is_refused_before_it_is_read(opening: bytes) -> None:
    def read(depth: int) -> Any:
        closing = b"".join({b"[": b"]", b"{": b"}"}[bracket] for bracket in reversed(brackets(opening) * depth))
        return decode(frame(b'["Reply","a",{"x":' + opening * depth + b"0" + closing + b"}]"))

    assert read(100 // len(brackets(opening)))
    with pytest.raises(ProtocolError, match="not a message") as caught:
        read(102 // len(brackets(opening)))
    assert str(caught.value.__cause__) == "nested too deeply, or not closed"


def brackets(opening: bytes) -> list[bytes]:
    """Returns the brackets that stand outside of texts."""
    return {b"[": [b"["], b'{"x":': [b"{"], b'[{"[]":': [b"[", b"{"], b'["\\"[[",': [b"["]}[opening]


@pytest.mark.parametrize("value", [b"[]", b"{}", b"0", b'""', b'{"":0}'])
def test_json_of_more_values_than_a_guest_sends_is_refused_before_it_is_read(value: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="not a message") as caught:
            decode(frame(b'["Reply","a",{"x":[' + b",".join([value] * 2_000_000) + b"]}]"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(caught.value.__cause__) in ("too many values", "too many texts")
    assert peak < 400 * 1024 * 1024  # the values would take 128 bytes each, and more


def test_text_full_of_brackets_and_commas_is_no_structure() -> None:
    text = '[{",\\' * 500_000
    assert decode(encode(m.Reply("a", {"x": text, "y": [[text]]}))) == [m.Reply("a", {"x": text, "y": [[text]]})]


@pytest.mark.parametrize("left", [20, 60, 200])
def test_a_message_that_comes_when_the_callers_stack_is_nearly_full_is_not_lost(left: int) -> None:
    sent, decoder = m.Reply("a", {"x": nested(99)}), Decoder()
    data = encode(sent)

    def dive(frames: int) -> list[m.Message]:
        return dive(frames - 1) if frames > 0 else decoder.feed(data)

    try:
        received = dive(sys.getrecursionlimit() - len(inspect.stack()) - left)
    except RecursionError:
        received = decoder.feed(b"")
    assert received == [sent]


@pytest.mark.parametrize("number", ["9" * 4300, "9" * 4301, "-" + "9" * 5000, "1e999", "NaN", "-Infinity", "0" * 9])
def test_strange_numbers_are_harmless(number: str) -> None:
    for template in ('["Started","a",%s]', '["Answer","a",%s,true,"",""]', '["Clear","a",%s]', "[%s]"):
        assert_harmless(frame((template % number).encode()))
