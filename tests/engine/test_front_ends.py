"""What a kernel does for front ends: comm messages both ways, input from a person, history, and what runs raw."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.cells import DEADLINE

from kernelbox import KernelRecord
from kernelbox.api._configured import kernels
from kernelbox.shells._asyncio_run import Run, query
from kernelbox.wire._messages import Answer, Ask, Comm, Display, Execute, Message, Output, Started, Withdraw
from kernelbox.wire._results import ExecutionResult


def run(
    record: KernelRecord, request: Execute, answer: Callable[[Ask], str | None] = lambda ask: None
) -> tuple[list[Message], ExecutionResult]:
    """Runs a request and returns its messages and its result; `answer` answers what is asked, None rejects."""

    async def drive() -> tuple[list[Message], ExecutionResult]:
        messages: list[Any] = []
        going = await Run.begin(kernels().kernel(record), request, timeout=DEADLINE, raw=True)
        while events := await going.next():
            messages += events
            for event in events:
                if isinstance(event, Ask):
                    said = answer(event)
                    going.answer(Answer(event.id, event.ask, said is not None, "no", payload=(said or "").encode()))
        assert going.execution.result is not None
        return messages, going.execution.result

    return asyncio.run(drive())


def cell(code: str, **options: Any) -> Execute:
    return Execute(os.urandom(8).hex(), code, **options)


def comm_message(kind: str, buffers: list[bytes] | None = None, **content: Any) -> Execute:
    return cell(json.dumps({"msg_type": kind, "content": content}), language="comm", buffers=buffers or [])


def ask(record: KernelRecord, what: str, **args: Any) -> dict[str, Any]:
    return asyncio.run(query(kernels().kernel(record), what, args, timeout=DEADLINE))


def text(messages: list[Message]) -> str:
    return "".join(message.text for message in messages if isinstance(message, Output))


def comms(messages: list[Message]) -> list[Comm]:
    return [message for message in messages if isinstance(message, Comm)]


ECHO = """
import comm
seen = []
def opened(channel, message):
    seen.append(message["content"]["data"])
    @channel.on_msg
    def _(message):
        print("got", message["content"]["data"])
        channel.send({"echo": message["content"]["data"]}, buffers=[bytes(b)[::-1] for b in message["buffers"]])
    @channel.on_close
    def _(message):
        seen.append("closed")
comm.get_comm_manager().register_target("echo", opened)
"""


def test_a_raw_execution_yields_the_messages_and_keeps_nothing(kernel: KernelRecord) -> None:
    messages, result = run(kernel, cell("print('x' * 5_000_000); 6 * 7"))
    assert isinstance(messages[0], Started)
    assert text(messages) == "x" * 5_000_000 + "\n"
    (shown,) = [message for message in messages if isinstance(message, Display)]
    assert (shown.kind, shown.data) == ("execute_result", {"text/plain": "42"})
    assert (result.status, result.outputs, result.output) == ("success", [], "")


def test_what_a_kernel_wrote_before_it_died_is_an_event_of_a_raw_execution(kernel: KernelRecord) -> None:
    messages, result = run(kernel, cell("import os; os.write(1, b'last words'); os.kill(os.getpid(), 9)"))
    assert text(messages) == "last words"
    assert result.ending == "died"


def test_a_front_ends_comm_message_reaches_the_comm_and_is_answered_with_buffers(kernel: KernelRecord) -> None:
    run(kernel, cell(ECHO))
    run(kernel, comm_message("comm_open", comm_id="c1", target_name="echo", data={"a": 1}))
    messages, result = run(kernel, comm_message("comm_msg", [b"abc", b"\x00\xff"], comm_id="c1", data={"b": [2]}))
    assert text(messages) == "got {'b': [2]}\n"
    (sent,) = comms(messages)
    assert (sent.msg_type, sent.buffers) == ("comm_msg", [b"cba", b"\xff\x00"])
    assert (sent.content["comm_id"], sent.content["data"]) == ("c1", {"echo": {"b": [2]}})
    assert result.status == "success"
    assert ask(kernel, "comms", target_name="echo")["comms"] == {"c1": {"target_name": "echo"}}
    run(kernel, comm_message("comm_close", comm_id="c1", data={}))
    assert text(run(kernel, cell("print(seen)"))[0]) == "[{'a': 1}, 'closed']\n"
    assert ask(kernel, "comms", target_name="")["comms"] == {}


def test_a_comm_of_a_target_that_no_library_has_registered_is_closed_quietly(kernel: KernelRecord) -> None:
    messages, result = run(kernel, comm_message("comm_open", comm_id="c2", target_name="nobody", data={}))
    assert [(sent.msg_type, sent.content["comm_id"]) for sent in comms(messages)] == [("comm_close", "c2")]
    assert (text(messages), result.status) == ("", "success")
    messages, result = run(kernel, comm_message("comm_msg", comm_id="c2", data={}))
    assert (comms(messages), text(messages), result.status) == ([], "", "success")


@pytest.mark.parametrize("code", ["[1]", "not JSON", '{"msg_type": "comm_msg"}', '{"msg_type": 5, "content": {}}'])
def test_what_is_no_comm_message_is_an_error_and_the_kernel_goes_on(kernel: KernelRecord, code: str) -> None:
    _, result = run(kernel, cell(code, language="comm"))
    assert result.status == "error"
    assert run(kernel, cell("1"))[1].status == "success"


def test_a_comm_message_does_not_count_as_a_cell(kernel: KernelRecord) -> None:
    first = run(kernel, cell("1"))[1].execution_count
    assert first is not None
    assert run(kernel, comm_message("comm_open", comm_id="c", target_name="no", data={}))[1].execution_count is None
    assert run(kernel, cell("1"))[1].execution_count == first + 1


def test_a_widget_changes_with_what_its_front_end_sends(kernel: KernelRecord) -> None:
    messages, _ = run(kernel, cell("import ipywidgets\nslider = ipywidgets.IntSlider()\nslider"))
    opened = [sent for sent in comms(messages) if sent.msg_type == "comm_open"]
    model = next(sent for sent in opened if sent.content["data"]["state"].get("_model_name") == "IntSliderModel")
    run(kernel, cell("slider.observe(lambda change: print('now', change['new']), 'value')"))
    data = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    messages, _ = run(kernel, comm_message("comm_msg", comm_id=model.content["comm_id"], data=data))
    assert text(messages) == "now 7\n"
    assert text(run(kernel, cell("print(slider.value)"))[0]) == "7\n"


def test_libraries_see_the_id_under_which_the_front_end_knows_the_cell(kernel: KernelRecord) -> None:
    code = "print(get_ipython().kernel.get_parent()['header']['msg_id'])"
    messages, _ = run(kernel, cell(code, parent="the-front-ends-own-id-which-is-longer-than-ours"))
    assert text(messages) == "the-front-ends-own-id-which-is-longer-than-ours\n"
    request = cell(code)
    assert text(run(kernel, request)[0]) == f"{request.id}\n"


def test_input_is_answered_by_a_client_that_says_so(kernel: KernelRecord) -> None:
    asked: list[dict[str, Any]] = []

    def answer(question: Ask) -> str:
        asked.append(question.tool_args)
        return "Ädä \N{SNAKE}"

    code = "print('before')\nname = input('name? ')\nimport getpass\nsecret = getpass.getpass()\nprint(name, secret)"
    messages, _ = run(kernel, cell(code, allow_stdin=True), answer)
    assert asked == [{"prompt": "name? ", "password": False}, {"prompt": "Password: ", "password": True}]
    assert text(messages) == "before\nÄdä \N{SNAKE} Ädä \N{SNAKE}\n"
    assert text(messages[: [type(message) for message in messages].index(Ask)]) == "before\n"


def test_input_without_a_client_that_answers_is_refused_as_before(kernel: KernelRecord) -> None:
    for request in (cell("input('name? ')"), cell("input()", allow_stdin=True)):
        messages, result = run(kernel, request)
        assert result.error is not None
        assert result.error.ename == "StdinNotImplementedError"
        assert not any(isinstance(message, Withdraw) for message in messages)


def test_the_end_of_the_input_raises_eof_error(kernel: KernelRecord) -> None:
    _, result = run(kernel, cell("input()", allow_stdin=True), lambda ask: "\x04")
    assert result.error is not None
    assert result.error.ename == "EOFError"


def test_a_debugger_talks_with_the_client(kernel: KernelRecord) -> None:
    lines = iter(["p 6 * 7", "c"])
    messages, result = run(kernel, cell("breakpoint()\nprint('on')", allow_stdin=True), lambda ask: next(lines))
    assert "42" in text(messages)
    assert text(messages).endswith("on\n")
    assert result.status == "success"
    run(kernel, cell("x = 23\n1 / 0"))
    lines = iter(["p x", "q"])
    assert "23" in text(run(kernel, cell("%debug", allow_stdin=True), lambda ask: next(lines))[0])


def test_history_is_told_by_range_by_tail_and_by_search(kernel: KernelRecord) -> None:
    for code in ("a = 1", "a + 1", "a = 1"):
        run(kernel, cell(code))

    def inputs(**args: Any) -> list[Any]:
        history: list[list[Any]] = ask(kernel, "history", **args)["history"]
        return [entry for _, _, entry in history]

    assert inputs(hist_access_type="tail", n=2) == ["a + 1", "a = 1"]
    assert inputs(hist_access_type="tail", n=0) == []
    assert inputs(hist_access_type="range", session=0, start=1, stop=3) == ["a = 1", "a + 1"]
    assert inputs(hist_access_type="search", pattern="a =*") == ["a = 1", "a = 1"]
    assert inputs(hist_access_type="search", pattern="a =*", unique=True) == ["a = 1"]
    assert inputs(hist_access_type="search", pattern="*+*", output=True) == [["a + 1", "2"]]


def test_expressions_are_evaluated_each_by_itself(kernel: KernelRecord) -> None:
    run(kernel, cell("x = 20"))
    found = ask(kernel, "expressions", expressions={"good": "x + 1", "bad": "1 / 0"})["user_expressions"]
    assert found["good"]["data"] == {"text/plain": "21"}
    assert (found["bad"]["status"], found["bad"]["ename"]) == ("error", "ZeroDivisionError")
