"""What a request of a front end leads to, message by message, without a kernel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernelbox.server.jupyter._exchange import (
    Exchange,
    read_cell,
    read_comm,
    read_expressions,
    read_query,
    stops_on_error,
)
from kernelbox.server.jupyter._front_end_message import Author, JupyterMessage
from kernelbox.wire._messages import Clear, Comm, Display, Output, Started
from kernelbox.wire._results import ErrorInfo, ExecutionResult


def request(kind: str = "execute_request", channel: Any = "shell", **content: Any) -> JupyterMessage:
    return JupyterMessage(channel, {"msg_type": kind, "msg_id": "r1", "session": "f"}, content=content)


def exchange(kind: str = "execute_request", channel: Any = "shell", **content: Any) -> Exchange:
    return Exchange(Author("s", lambda: "now"), request(kind, channel, **content))


def shown(messages: list[JupyterMessage]) -> list[tuple[str, str, dict[str, Any]]]:
    assert all(message.parent["msg_id"] == "r1" for message in messages)
    return [(message.channel, message.kind, message.content) for message in messages]


def test_a_request_begins_busy_and_ends_idle() -> None:
    one = exchange()
    assert shown([one.begin(), one.end()]) == [
        ("iopub", "status", {"execution_state": "busy"}),
        ("iopub", "status", {"execution_state": "idle"}),
    ]


def test_all_front_ends_see_the_code_of_a_cell_unless_it_is_silent() -> None:
    told = exchange(code="1 + 1").broadcast(Started("x", 7))
    assert shown(told) == [("iopub", "execute_input", {"code": "1 + 1", "execution_count": 7})]
    assert exchange(code="1 + 1", silent=True).broadcast(Started("x", 7)) == []
    assert exchange("comm_msg").broadcast(Started("x", 7)) == []


@pytest.mark.parametrize(
    ("message", "kind", "content"),
    [
        (Output("x", "stderr", "oh"), "stream", {"name": "stderr", "text": "oh"}),
        (Clear("x", True), "clear_output", {"wait": True}),
        (
            Display("x", "display_data", {"text/plain": "f"}, {"image/png": {"width": 1}}, blobs={"image/png": b"PNG"}),
            "display_data",
            {
                "data": {"text/plain": "f", "image/png": "UE5H"},
                "metadata": {"image/png": {"width": 1}},
                "transient": {},
            },
        ),
        (
            Display("x", "update_display_data", {"text/plain": "f"}, {}, "d"),
            "update_display_data",
            {"data": {"text/plain": "f"}, "metadata": {}, "transient": {"display_id": "d"}},
        ),
        (
            Display("x", "execute_result", {"text/plain": "2"}, {}, execution_count=9),
            "execute_result",
            {"data": {"text/plain": "2"}, "metadata": {}, "transient": {}, "execution_count": 9},
        ),
        (
            Display("x", "error", {"text/plain": "a\nb"}, {"ename": "E", "evalue": "v"}),
            "error",
            {"ename": "E", "evalue": "v", "traceback": ["a", "b"]},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_cell_says_is_told_in_jupyters_words(message: Any, kind: str, content: dict[str, Any]) -> None:
    assert shown(exchange(code="").broadcast(message)) == [("iopub", kind, content)]


def test_a_result_without_a_count_has_that_of_its_cell() -> None:
    one = exchange(code="")
    one.broadcast(Started("x", 4))
    (message,) = one.broadcast(Display("x", "execute_result", {}, {}))
    assert message.content["execution_count"] == 4


def test_a_comm_message_keeps_its_metadata_and_buffers() -> None:
    content = {"comm_id": "c", "data": {"x": 1}, "metadata": {"version": "2"}, "target_name": "t"}
    (message,) = exchange(code="").broadcast(Comm("x", "comm_open", content, [b"\x00"]))
    assert (message.kind, message.metadata, message.buffers) == ("comm_open", {"version": "2"}, (b"\x00",))
    assert message.content == {"comm_id": "c", "data": {"x": 1}, "target_name": "t"}


def test_the_reply_tells_how_the_cell_ended() -> None:
    one = exchange(code="")
    good = one.reply_to_cell(ExecutionResult("success", execution_count=3), {"a": {}}, [])
    ok = {"status": "ok", "execution_count": 3, "payload": [], "user_expressions": {"a": {}}}
    assert shown([good]) == [("shell", "execute_reply", ok)]
    error = ErrorInfo("E", "v", ["t"])
    bad = one.reply_to_cell(ExecutionResult("error", error=error, execution_count=3), {}, []).content
    assert (bad["status"], bad["ename"], bad["evalue"], bad["traceback"]) == ("error", "E", "v", ["t"])
    assert shown(one.fail(error)) == [("iopub", "error", error.to_dict())]
    assert one.fail(ErrorInfo("UsageError", "was written to stderr")) == []


def test_a_reply_goes_out_on_the_channel_of_its_request() -> None:
    assert exchange("interrupt_request", "control").reply({}).channel == "control"
    assert exchange("interrupt_request", "control").reply({}).kind == "interrupt_reply"
    assert exchange("complete_request").reply({}).kind == "complete_reply"


def test_a_question_goes_out_on_stdin() -> None:
    question = exchange(code="").ask_for_input("name? ", password=True)
    assert shown([question]) == [("stdin", "input_request", {"prompt": "name? ", "password": True})]


def test_a_cell_is_read_with_jupyters_defaults() -> None:
    cell = read_cell(request(code="1"), "x")
    assert (cell.id, cell.code, cell.language, cell.parent) == ("x", "1", "python", "r1")
    assert (cell.silent, cell.store_history, cell.allow_stdin, cell.text_limit) == (False, True, True, 0)
    silent = read_cell(request(code="1", silent=True, store_history=True, allow_stdin=False), "x")
    assert (silent.silent, silent.store_history, silent.allow_stdin) == (True, False, False)
    odd = read_cell(request(code="1", silent="yes", store_history=0), "x")
    assert (odd.silent, odd.store_history) == (False, True)
    assert stops_on_error(request(code="1"))
    assert not stops_on_error(request(code="1", stop_on_error=False))


@pytest.mark.parametrize("content", [{}, {"code": None}, {"code": ["1"]}])
def test_a_cell_without_code_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="code"):
        read_cell(request(**content), "x")


def test_a_comm_message_is_read_whole() -> None:
    message = JupyterMessage("shell", {"msg_type": "comm_msg", "msg_id": "r"}, {}, {"m": 1}, {"comm_id": "c"}, (b"b",))
    cell = read_comm(message, "x")
    assert (cell.language, cell.buffers, cell.parent) == ("comm", [b"b"], "r")
    read = json.loads(cell.code)
    assert (read["msg_type"], read["metadata"]) == ("comm_msg", {"m": 1})
    assert read["content"] == {"comm_id": "c", "data": {}}


@pytest.mark.parametrize(
    ("kind", "content"), [("comm_msg", {}), ("comm_open", {"comm_id": "c"}), ("comm_close", {"comm_id": 5})]
)
def test_a_comm_message_that_names_no_comm_is_refused(kind: str, content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="comm_id"):
        read_comm(request(kind, **content), "x")


@pytest.mark.parametrize(
    ("kind", "content", "what", "args"),
    [
        ("complete_request", {"code": "ab", "cursor_pos": 1}, "complete", {"code": "ab", "cursor_pos": 1}),
        ("complete_request", {"code": "ab"}, "complete", {"code": "ab", "cursor_pos": 2}),
        ("complete_request", {"code": "ab", "cursor_pos": 99}, "complete", {"code": "ab", "cursor_pos": 2}),
        ("complete_request", {"code": "ab", "cursor_pos": -1}, "complete", {"code": "ab", "cursor_pos": 2}),
        (
            "inspect_request",
            {"code": "ab", "cursor_pos": 0, "detail_level": 1},
            "inspect",
            {"code": "ab", "cursor_pos": 0, "detail_level": 1},
        ),
        ("is_complete_request", {"code": "if x:"}, "is_complete", {"code": "if x:"}),
        ("comm_info_request", {}, "comms", {"target_name": ""}),
    ],
)
def test_a_question_becomes_a_query(kind: str, content: dict[str, Any], what: str, args: dict[str, Any]) -> None:
    assert read_query(request(kind, **content)) == (what, args)


def test_a_request_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="make_coffee_request"):
        read_query(request("make_coffee_request"))


def test_only_expressions_that_are_text_are_evaluated() -> None:
    assert read_expressions(request(user_expressions={"a": "1", "b": 2})) == {"a": "1"}
    assert read_expressions(request(user_expressions=["a"])) == {}
