"""A client that watches a Jupyter kernel, and what front ends need of one, event by event: no sockets, no clock."""

from __future__ import annotations

import json

import pytest

from kernelbox.host.engines.jupyter._actions import SendRequest
from kernelbox.host.engines.jupyter._conversation import IDLE_PATIENCE
from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage, SignedCodec
from kernelbox.wire._messages import INPUT_TOOL, SHELL_SERVER, Answer, Ask, Begun, Comm, Done, Execute, Output, Started

from .test_conversation import Talk, delivered, probe_in, requested

MESSAGE = {"msg_type": "comm_msg", "content": {"comm_id": "c", "data": {}}, "metadata": {"m": 1}}


def watching() -> Talk:
    talk = Talk().greet()
    talk.conversation.watch()
    return talk


def comm(talk: Talk, code: str = json.dumps(MESSAGE)) -> SendRequest:
    """Has a message sent to a comm; returns the request that does it."""
    talk.conversation.execute(Execute("x", code, "comm", buffers=[b"raw"]))
    (request,) = [action for action in talk.first() if isinstance(action, SendRequest)]
    return request


def test_a_message_to_a_comm_goes_out_as_it_came_and_ends_with_idle() -> None:
    talk = watching()
    request = comm(talk)
    assert (request.channel, request.kind, request.content) == ("shell", "comm_msg", MESSAGE["content"])
    assert (request.metadata, request.buffers) == ({"m": 1}, (b"raw",))
    talk.status("busy")
    assert delivered(talk.publish("stream", name="stdout", text="t")) == [Output("x", "stdout", "t")]
    assert delivered(talk.status("idle")) == [Done("x", "ok")]
    assert talk.stage == "resting"


def test_a_message_to_a_comm_whose_idle_is_lost_ends_with_the_answer_to_a_probe() -> None:
    talk = watching()
    comm(talk)
    probe = probe_in(talk.wait(IDLE_PATIENCE))
    assert delivered(talk.answer(probe)) == [Done("x", "ok", cut=True)]
    assert talk.stage == "resting"


@pytest.mark.parametrize("code", ["no JSON", "[]", "{}", '{"msg_type": "shutdown_request"}', '{"msg_type": []}'])
def test_what_is_no_message_to_a_comm_is_refused(code: str) -> None:
    talk = watching()
    (refusal,) = delivered(talk.conversation.execute(Execute("x", code, "comm")))
    assert isinstance(refusal, Done)
    assert (refusal.status, talk.stage) == ("error", "resting")


def ask(talk: Talk, parent: str = "x", **content: object) -> list[object]:
    said = KernelMessage("input_request", parent, {"prompt": "? ", "password": False, **content})
    return [*delivered(talk.conversation.asked(said))]


def test_what_a_cell_asks_is_told_and_the_answer_goes_back() -> None:
    talk = watching().run()
    assert ask(talk) == [Ask("x", 1, SHELL_SERVER, INPUT_TOOL, {"prompt": "? ", "password": False})]
    assert ask(talk, "another") == []
    (reply,) = talk.conversation.answer(Answer("x", 1, True, payload="Äda".encode()))
    assert isinstance(reply, SendRequest)
    assert (reply.channel, reply.kind, reply.content) == ("stdin", "input_reply", {"value": "Äda"})
    (refusal,) = talk.conversation.answer(Answer("x", 1, False, "gone"))
    assert isinstance(refusal, SendRequest)
    assert refusal.content == {"value": "\x04"}
    assert talk.conversation.answer(Answer("y", 1, True)) == []
    talk.reply()
    talk.status("idle")
    assert talk.conversation.answer(Answer("x", 1, True)) == []


def test_a_cell_may_ask_only_where_somebody_answers() -> None:
    for talk, allowed in ((watching(), True), (Talk().greet(), False)):
        talk.execute(allow_stdin=True)
        (request,) = [action for action in talk.first() if isinstance(action, SendRequest)]
        assert request.content["allow_stdin"] is allowed


def test_a_cell_of_another_client_is_told_from_beginning_to_end() -> None:
    talk = watching()
    assert delivered(talk.status("busy", "other")) == []
    begun = talk.publish("execute_input", "other", code="1 / 0", execution_count=7)
    assert delivered(begun) == [Begun("other", "1 / 0", "python", 7, False, "other")]
    assert delivered(talk.publish("stream", "other", name="stderr", text="t")) == [Output("other", "stderr", "t")]
    assert delivered(talk.publish("error", "other", ename="E", evalue="v", traceback=["l"])) == []
    assert delivered(talk.status("idle", "other")) == [Done("other", "error", None, "E", "v", ["l"])]
    assert delivered(talk.status("busy", "asks")) == delivered(talk.status("idle", "asks")) == []


def test_what_comes_between_cells_is_told_at_once_and_not_again() -> None:
    talk = watching().run("x")
    talk.reply()
    talk.status("idle")
    assert delivered(talk.publish("stream", name="stdout", text="late")) == [Output("", "stdout", "late")]
    assert delivered(talk.publish("comm_msg", "?", comm_id="c")) == [Comm("", "comm_msg", {"comm_id": "c"})]
    assert delivered(talk.publish("execute_result", "?", data={}, metadata={})) == []
    talk.execute("y")
    assert delivered(talk.first()) == [Started("y", 0)]


def test_a_client_that_does_not_watch_is_told_nothing_of_others() -> None:
    talk = Talk().greet()
    assert talk.publish("execute_input", "other", code="1", execution_count=7) == []
    assert talk.publish("comm_msg", "other", comm_id="c") == []


def test_history_and_comms_are_asked_for_by_jupyters_names() -> None:
    talk = watching()
    (history,) = talk.query("history", hist_access_type="tail", n=1, pattern=None)
    assert isinstance(history, SendRequest)
    assert (history.kind, history.content) == ("history_request", {"hist_access_type": "tail", "n": 1})
    assert requested(talk.query("comms", target_name="")) == [("shell", "comm_info_request", "q")]
    assert len(delivered(talk.reply("q", "comm_info_reply", comms={}))) == 1


def test_metadata_and_buffers_of_comms_cross_the_codec() -> None:
    codec = SignedCodec("key")
    read = codec.decode(codec.encode("comm_msg", {"a": 1}, "i", {"m": 2}, (b"x", b"")))
    assert read is not None
    assert (read.content, read.metadata, read.buffers) == ({"a": 1}, {"m": 2}, (b"x", b""))
    many = codec.decode(codec.encode("comm_msg", {"a": 1}, "i", {}, (b"",) * 20_000))
    assert many is not None
    assert (many.unread, many.buffers) == (True, ())
