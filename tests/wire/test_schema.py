"""What each field of a message takes, and what is said of one that takes something else."""

from __future__ import annotations

import pytest

from kernelbox.wire import _messages
from kernelbox.wire._schema import SCHEMA, find_fault

MESSAGES: list[_messages.Message] = [
    _messages.Execute("me", "1"),
    _messages.Display("me", "display_data", {}, {}),
    _messages.Comm("me", "comm_msg", {}),
    _messages.Done("me", "ok"),
    _messages.Output("me", "stdout", "x"),
    _messages.Spawn("k", "/d", "/c", 18),
    _messages.Answer("me", 1, True, payload=b"x"),
]


def fault_of_ask(*, id: object = "me", ask: object = 1, server: object = "s", tool: object = "t") -> str:
    return find_fault("Ask", [id, ask, server, tool, {}])


def fault_with(kind: str, field: str, value: object) -> str:
    (message,) = (message for message in MESSAGES if type(message).__name__ == kind)
    values = {name: getattr(message, name) for name, *_ in SCHEMA[kind][1]}
    return find_fault(kind, list((values | {field: value}).values()))


@pytest.mark.parametrize(
    ("field", "fits", "does_not"),
    [
        ("id", "x" * 32, "x" * 33),
        ("id", "", "é"),
        ("id", "a b", "a\0"),
        ("ask", -1, True),
        ("server", "x" * 1000, "x" * 1001),
        ("tool", "é" * 1000, "é" * 1001),
        ("tool", "", None),
    ],
)
def test_a_field_takes_what_fits_it_and_nothing_more(field: str, fits: object, does_not: object) -> None:
    assert fault_of_ask(**{field: fits}) == ""
    assert fault_of_ask(**{field: does_not}) != ""


@pytest.mark.parametrize(
    ("kind", "field", "fits", "does_not"),
    [
        ("Execute", "code", "x" * 100_000, b"x"),
        ("Execute", "id", "x", ""),
        ("Execute", "id", "x" * 32, "x" * 33),
        ("Execute", "key", "", "x" * 33),
        ("Execute", "language", "comm", "Python"),
        ("Execute", "language", "bash", ["bash"]),
        ("Execute", "silent", True, 1),
        ("Execute", "silent", False, None),
        ("Execute", "parent", "x" * 256, "x" * 257),
        ("Execute", "buffers", [b""] * 10_000, [b""] * 10_001),
        ("Execute", "buffers", [], b""),
        ("Output", "name", "stderr", "stdlog"),
        ("Display", "kind", "update_display_data", ""),
        ("Display", "data", {}, []),
        ("Display", "data", {"x" * 255: 1}, {"x" * 256: 1}),
        ("Display", "data", dict.fromkeys(map(str, range(100))), dict.fromkeys(map(str, range(101)))),
        ("Display", "blobs", {"image/png": b""}, {"x" * 256: b""}),
        ("Display", "metadata", {"a": {"b": [1]}}, [1]),
        ("Display", "display_id", "x" * 1000, "x" * 1001),
        ("Display", "execution_count", None, ""),
        ("Display", "execution_count", 5, 5.0),
        ("Display", "cut", True, "yes"),
        ("Display", "value", "1" * 1_000_000, "1" * 1_000_001),
        ("Done", "exit_code", -9, 2**31),
        ("Done", "exit_code", None, "7"),
        ("Comm", "msg_type", "comm_open", "comm_info"),
        ("Done", "status", "aborted", "success"),
        ("Done", "ename", "x" * 1000, "x" * 1001),
        ("Done", "traceback", ["x"] * 20_000, "x"),
        ("Done", "traceback", [], ["x", 1]),
        ("Done", "changed", None, []),
        ("Done", "changed", {}, {"renamed": []}),
        ("Done", "changed", {"added": ["a"], "changed": [], "removed": []}, {"added": ["a"], "changed": "a"}),
        ("Done", "changed", {"added": ["x" * 256]}, {"added": ["x" * 257]}),
        ("Done", "changed", {"added": ["x"] * 2000}, {"added": ["x"] * 2001}),
        ("Done", "changed", {"added": []}, {"added": [None]}),
        ("Spawn", "idle_timeout", 1, True),
        ("Spawn", "idle_timeout", 0.5, "1"),
        ("Spawn", "argv", ["a"], ("a",)),
    ],
)
def test_what_our_own_side_would_not_send_is_a_fault(kind: str, field: str, fits: object, does_not: object) -> None:
    assert fault_with(kind, field, fits) == ""
    assert fault_with(kind, field, does_not).startswith(f"{kind}.{field} cannot be ")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_our_own_side_sends_is_no_fault(message: _messages.Message) -> None:
    kind = type(message).__name__
    assert find_fault(kind, [getattr(message, name) for name, *_ in SCHEMA[kind][1]]) == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 2000, f"'{'x' * 60}'"),
        (5, "5"),
        (1.5, "1.5"),
        (None, "None"),
        (["x" * 10_000_000], "this list"),
    ],
)
def test_a_fault_is_told_with_the_beginning_of_the_value(value: object, said: str) -> None:
    assert fault_of_ask(tool=value) == f"Ask.tool_name cannot be {said}"


def test_a_message_has_as_many_values_as_fields() -> None:
    with pytest.raises(ValueError, match="longer"):
        find_fault("Ask", ["me", 1])
