"""What a Jupyter kernel says about a cell, as our own messages, in every order that two channels can bring it."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Literal

import pytest

from kernelbox.host.engines.jupyter._jupyter_cell import JupyterCell
from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Clear, Comm, Display, Done, Execute, Message, Output, Started

IDLE: tuple[str, dict[str, Any]] = ("status", {"execution_state": "idle"})
OK: tuple[str, dict[str, Any]] = ("execute_reply", {"status": "ok", "execution_count": 3})


def test_a_cell_has_ended_when_both_the_reply_and_idle_are_here() -> None:
    for first, second in permutations([IDLE, OK]):
        cell = JupyterCell(Execute("x", "1"))
        assert feed(cell, first) == []
        assert feed(cell, second) == [Done("x", "ok", 3)]
        assert cell.done


def test_what_comes_between_the_reply_and_idle_belongs_to_the_cell() -> None:
    cell = JupyterCell(Execute("x", "1"))
    messages = feed(cell, OK, ("stream", {"name": "stderr", "text": "late"}), IDLE)
    assert messages == [Output("x", "stderr", "late"), Done("x", "ok", 3)]


def test_published_messages_are_translated() -> None:
    cell = JupyterCell(Execute("x", "1"))
    messages = feed(
        cell,
        ("status", {"execution_state": "busy"}),
        ("execute_input", {"code": "1", "execution_count": 3}),
        ("stream", {"name": "stdout", "text": "out"}),
        ("display_data", {"data": {"image/png": "AAEC"}, "metadata": {}, "transient": {"display_id": "d"}}),
        ("clear_output", {"wait": True}),
        ("execute_result", {"data": {"text/plain": "1"}, "metadata": {}, "execution_count": 3}),
        ("comm_open", {"comm_id": "c"}),
        ("something_new", {}),
    )
    assert messages == [
        Started("x", 3),
        Output("x", "stdout", "out"),
        Display("x", "display_data", {}, {}, "d", blobs={"image/png": b"\x00\x01\x02"}),
        Clear("x", True),
        Display("x", "execute_result", {"text/plain": "1"}, {}, "", 3),
        Comm("x", "comm_open", {"comm_id": "c"}),
    ]


def test_an_error_is_taken_from_what_was_published_without_its_colours() -> None:
    error = {"ename": "E", "evalue": "v", "traceback": ["\x1b[0;31mline 1\x1b[0m\nline 2", "line 3"]}
    done = end(feed(JupyterCell(Execute("x", "1")), ("error", error), ("execute_reply", {"status": "error"}), IDLE))
    assert (done.status, done.ename, done.evalue) == ("error", "E", "v")
    assert done.traceback == ["line 1", "line 2", "line 3"]


def test_an_error_that_did_not_fail_the_cell_is_shown() -> None:
    error = {"ename": "E", "evalue": "v", "traceback": ["shown"]}
    messages = feed(JupyterCell(Execute("x", "1")), ("error", error), OK, IDLE)
    assert messages == [Output("x", "stderr", "shown\n"), Done("x", "ok", 3)]


def test_an_error_is_bounded() -> None:
    error = {"ename": "E", "evalue": "v" * 2_000_000, "traceback": ["t" * 1000]}
    reply = ("execute_reply", {"status": "error", **error})
    done = end(feed(JupyterCell(Execute("x", "1", text_limit=200)), reply, IDLE))
    assert done.cut
    assert len(done.evalue) <= 1_000_000
    assert len("\n".join(done.traceback)) <= 200


def test_an_error_of_any_size_is_bounded_without_a_limit_too() -> None:
    error = {"ename": "E" * 10_000, "evalue": "v" * 5_000_000, "traceback": ["\n" * 5_000_000]}
    done = end(feed(JupyterCell(Execute("x", "1")), ("execute_reply", {"status": "error", **error}), IDLE))
    assert done.cut
    assert (len(done.ename), len(done.evalue)) == (1_000, 2 * 1024 * 1024)
    assert len(done.traceback) == 10_001
    assert len("\n".join(done.traceback)) <= 2 * 1024 * 1024


@pytest.mark.parametrize(
    "content",
    [
        {"data": {"text/plain": "x" * 10_000_000}},
        {"data": {"text/html": "x" * 10_000_000}},
        {"data": {"application/json": [[0]] * 300_000}},
        {"data": {f"a/{number}": 1 for number in range(1_000)}},
        {"data": {}, "metadata": {"m": "x" * 10_000_000}},
        {"data": {"text/plain": "x"}, "transient": {"display_id": "d" * 10_000}},
        {"data": {"text/plain": "x"}, "transient": {"display_id": ["d" * 10_000]}},
        {"data": {"image/png": "A"}},
    ],
    ids=lambda content: repr(content)[:40],
)
def test_a_display_of_any_size_is_bounded(content: dict[str, Any]) -> None:
    (display,) = feed(JupyterCell(Execute("x", "1")), ("display_data", content))
    assert isinstance(display, Display)
    assert display.cut or display.data == {"image/png": "A"}
    assert Decoder().feed(encode(display)) == [display]
    assert len(encode(display)) < 5_000_000


def test_a_message_that_could_not_be_read_is_left_out_and_said_to_be() -> None:
    cell = JupyterCell(Execute("x", "1"))
    messages = [KernelMessage(kind, "x", {}, unread=True) for kind in ("display_data", "stream", "error", "comm_msg")]
    taken = [message for unread in messages for message in cell.take_published(unread)]
    assert not any(isinstance(message, Display | Comm) for message in taken)
    assert end(feed(cell, OK, IDLE)).cut


@pytest.mark.parametrize("status", ["abort", "aborted"])
def test_an_abort_before_the_cell_ran_means_that_it_never_did(status: str) -> None:
    done = end(feed(JupyterCell(Execute("x", "1")), ("execute_reply", {"status": status}), IDLE))
    assert done.status == "aborted"


def test_an_abort_of_a_running_cell_is_an_interrupt() -> None:
    reply = ("execute_reply", {"status": "abort"})
    done = end(feed(JupyterCell(Execute("x", "1")), ("execute_input", {}), reply, IDLE))
    assert (done.status, done.ename, done.interrupted) == ("error", "KeyboardInterrupt", True)


def test_a_page_is_shown_and_an_exit_is_noticed() -> None:
    payload = [
        {"source": "page", "data": {"text/plain": "help"}, "start": 0},
        {"source": "ask_exit", "keepkernel": False},
        "nonsense",
    ]
    cell = JupyterCell(Execute("x", "1"))
    messages = feed(cell, ("execute_reply", {"status": "ok", "payload": payload}), IDLE)
    assert messages[0] == Display("x", "display_data", {"text/plain": "help"}, {})
    assert cell.asks_to_exit


def test_a_lost_idle_ends_the_cell_with_a_mark() -> None:
    cell = JupyterCell(Execute("x", "1"))
    feed(cell, OK)
    assert cell.give_up() == [Done("x", "ok", 3, cut=True)]


def test_a_reply_that_was_lost_to_an_interrupt_is_an_interrupt() -> None:
    cell = JupyterCell(Execute("x", "1"))
    feed(cell, ("execute_input", {"execution_count": 3}), IDLE)
    cell.interrupted = True
    done = end(cell.give_up())
    assert (done.status, done.ename, done.interrupted, done.cut) == ("error", "KeyboardInterrupt", True, True)


@pytest.mark.parametrize("kind", ["status", "execute_input", "stream", "display_data", "clear_output", "error"])
@pytest.mark.parametrize("value", [None, 7, "text", [1], {"a": 1}])
def test_content_of_the_wrong_shape_breaks_nothing(kind: str, value: object) -> None:
    names = ("execution_state", "execution_count", "name", "text", "data", "metadata", "transient", "wait")
    content = dict.fromkeys((*names, "ename", "evalue", "traceback", "payload", "status"), value)
    cell = JupyterCell(Execute("x", "1"))
    feed(cell, (kind, content), ("execute_reply", content), IDLE)
    assert cell.done


@pytest.mark.parametrize(
    ("language", "kernel_language", "code"),
    [("python", "python", "ls"), ("bash", "python", "%%bash\nls"), ("bash", "bash", "ls"), ("python", "r", "ls")],
)
def test_bash_cells_are_put_in_the_words_of_the_kernel(
    language: Literal["python", "bash"], kernel_language: str, code: str
) -> None:
    cell = JupyterCell(Execute("x", "ls", language))
    assert cell.refuse(kernel_language) is None
    content = cell.content(kernel_language)
    assert content["code"] == code
    assert (content["allow_stdin"], content["stop_on_error"]) == (False, False)


@pytest.mark.parametrize(
    "request_",
    [
        Execute("x", "ls", "bash"),
        Execute("x", "{}", "comm"),
        Execute("x", "ls", approve_shell=True),
        Execute("x", "ls", restore_cwd="/"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused_with_a_reason(request_: Execute) -> None:
    done = JupyterCell(request_).refuse("r")
    assert done is not None
    assert (done.status, done.ename) == ("error", "NotSupported")
    assert done.evalue


def feed(cell: JupyterCell, *messages: tuple[str, dict[str, Any]]) -> list[Message]:
    out: list[Message] = []
    for kind, content in messages:
        message = KernelMessage(kind, cell.id, content)
        out += cell.take_reply(message) if kind == "execute_reply" else cell.take_published(message)
    return out


def end(messages: list[Message]) -> Done:
    assert isinstance(messages[-1], Done)
    return messages[-1]
