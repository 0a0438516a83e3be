"""Front ends over real WebSockets: requests of every kind, several front ends at once, and the end of kernels."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.front_ends import FrontEnd, attached
from tests.support.server import DEADLINE, Served, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kernelbox import ApprovalPolicy
from kernelbox.api._configured import kernels
from kernelbox.core._kernel_handle import KernelHandle
from kernelbox.core._options import KernelOptions
from kernelbox.server.jupyter._channel_options import ChannelRules, KernelAccess
from kernelbox.server.jupyter._front_end_channels import FrontEndChannels
from kernelbox.server.jupyter._front_end_message import JupyterMessage
from kernelbox.shells._asyncio_kernels import AsyncKernels
from kernelbox.tools._toolbox import Toolbox


def test_a_cell_is_told_from_busy_to_idle(front_end: FrontEnd) -> None:
    answered = front_end.run("print('hello'); 6 * 7")
    assert answered.kinds == ["status", "execute_input", "stream", "execute_result", "status"]
    assert answered.text == "hello\n"
    result = answered.first("execute_result").content
    assert (result["data"], result["execution_count"]) == ({"text/plain": "42"}, 1)
    assert answered.content == {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {}}


def test_an_error_is_told_and_replied(front_end: FrontEnd) -> None:
    answered = front_end.run("1 / 0")
    assert answered.first("error").content["ename"] == "ZeroDivisionError"
    assert (answered.content["status"], answered.content["ename"]) == ("error", "ZeroDivisionError")
    assert answered.content["traceback"]


def test_cells_behind_a_failing_one_are_aborted_unless_it_says_otherwise(front_end: FrontEnd) -> None:
    first = front_end.send("execute_request", {"code": "import time; time.sleep(0.2); 1 / 0"})
    second = front_end.send("execute_request", {"code": "x = 1"})
    assert front_end.finish(first).content["status"] == "error"
    assert front_end.finish(second).content["status"] == "aborted"
    first = front_end.send("execute_request", {"code": "1 / 0", "stop_on_error": False})
    second = front_end.send("execute_request", {"code": "x = 2"})
    assert front_end.finish(first).content["status"] == "error"
    assert front_end.finish(second).content["status"] == "ok"


def test_five_megabytes_of_text_arrive_whole(front_end: FrontEnd) -> None:
    assert front_end.run("print('x' * 5_000_000)").text == "x" * 5_000_000 + "\n"


def test_a_plot_arrives_as_a_picture(front_end: FrontEnd) -> None:
    answered = front_end.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert answered.first("display_data").content["data"]["image/png"].startswith("iVBOR")


def test_displays_are_updated_and_cleared(front_end: FrontEnd) -> None:
    code = "from IPython.display import *\nh = display(1, display_id='d')\nh.update(2)\nclear_output(wait=True)"
    answered = front_end.run(code)
    assert answered.first("display_data").content["transient"] == {"display_id": "d"}
    assert answered.first("update_display_data").content["data"] == {"text/plain": "2"}
    assert answered.first("clear_output").content == {"wait": True}


def test_questions_between_cells_are_answered(front_end: FrontEnd) -> None:
    front_end.run("alphabet = 'abc'")
    assert "alphabet" in front_end.ask("complete_request", code="alpha", cursor_pos=5).content["matches"]
    inspected = front_end.ask("inspect_request", code="alphabet", cursor_pos=3, detail_level=0).content
    assert inspected["found"]
    assert "abc" in inspected["data"]["text/plain"]
    assert front_end.ask("is_complete_request", code="if x:").content == {"status": "incomplete", "indent": "    "}
    tail = front_end.ask("history_request", hist_access_type="tail", n=1, raw=True, output=False).content
    assert tail["history"][0][2] == "alphabet = 'abc'"
    info = front_end.ask("kernel_info_request").content
    assert (info["implementation"], info["language_info"]["name"], info["debugger"]) == ("kernelbox", "python", False)
    assert front_end.ask("comm_info_request").content == {"status": "ok", "comms": {}}


def test_expressions_come_with_the_reply(front_end: FrontEnd) -> None:
    answered = front_end.run("x = 20", user_expressions={"a": "x + 1"})
    assert answered.content["user_expressions"]["a"]["data"] == {"text/plain": "21"}


def test_input_is_answered_by_the_front_end(front_end: FrontEnd) -> None:
    prompts = []

    def answer(message: object) -> str:
        prompts.append(message.content)  # type: ignore[attr-defined]  # a JupyterMessage
        return "Ada"

    answered = front_end.run("name = input('name? ')\nprint('hello', name)", answer, allow_stdin=True)
    assert prompts == [{"prompt": "name? ", "password": False}]
    assert answered.text == "hello Ada\n"


def test_input_is_refused_where_the_front_end_takes_no_questions(front_end: FrontEnd) -> None:
    assert front_end.run("input()", allow_stdin=False).content["ename"] == "StdinNotImplementedError"


def test_input_is_refused_when_its_front_end_goes_away(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as watching:
        with attached(served, kernel_id) as asked:
            request = asked.send("execute_request", {"code": "input()", "allow_stdin": True})
            while asked.receive().kind != "input_request":
                pass
        while (message := watching.receive()).kind != "error":
            pass
    assert message.parent["msg_id"] == request.id
    assert message.content["ename"] == "StdinNotImplementedError"


def test_an_interrupt_ends_the_cell_and_keeps_the_variables(front_end: FrontEnd) -> None:
    front_end.run("x = 5")
    request = front_end.send("execute_request", {"code": "print('on', flush=True)\nimport time\ntime.sleep(1000)"})
    while front_end.receive().kind != "stream":
        pass
    interrupt = front_end.send("interrupt_request", channel="control")
    replies: dict[str, JupyterMessage] = {}
    while len(replies) < 2:
        message = front_end.receive()
        if message.kind.endswith("_reply"):
            replies[message.parent["msg_id"]] = message
    assert replies[interrupt.id].channel == "control"
    assert replies[request.id].content["ename"] == "KeyboardInterrupt"
    assert front_end.run("x").first("execute_result").content["data"] == {"text/plain": "5"}


@pytest.mark.parametrize(
    "code",
    [
        "breakpoint()\nx = 1",
        "import pdb; pdb.set_trace()\nx = 1",
        "from pdb import Pdb\nPdb().set_trace()\nx = 1",
        "import IPython.core.debugger as d\nd.set_trace()\nx = 1",
        "import pdb; pdb.run('x = 1')",
        "%debug x = 1",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    import pdb; pdb.post_mortem()",
    ],
)
def test_an_interrupt_ends_a_debugger_and_the_cells_behind_it_run(served: Served, kernel_id: str, code: str) -> None:
    with attached(served, kernel_id) as front_end:
        debugged = front_end.send("execute_request", {"code": code})
        behind = front_end.send("execute_request", {"code": "print('goes on')"})
        while front_end.receive().kind != "input_request":
            pass
        front_end.send("interrupt_request", channel="control")
        assert front_end.finish(debugged).content["status"] == "ok"
        assert front_end.finish(behind).text == "goes on\n"


def test_an_interrupt_ends_a_cell_that_would_come_to_another_debugger(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as front_end:
        request = front_end.send("execute_request", {"code": "while True:\n    breakpoint()"})
        while front_end.receive().kind != "input_request":
            pass
        front_end.send("interrupt_request", channel="control")
        assert front_end.finish(request).content["ename"] == "KeyboardInterrupt"
        answers = iter(["p 6 * 7", "c"])
        assert "42" in front_end.run("breakpoint()\nx = 1", lambda asked: next(answers)).text


def test_an_interrupt_ends_a_cell_that_a_debugger_lets_go_on(served: Served, kernel_id: str) -> None:
    code = "import time\nbreakpoint()\nprint('on', flush=True)\ntime.sleep(1000)"
    with attached(served, kernel_id) as front_end:
        request = front_end.send("execute_request", {"code": code})
        while (message := front_end.receive()).kind != "input_request":
            pass
        front_end.send("input_reply", {"value": "c"}, channel="stdin", parent=message.header)
        while "on\n" not in front_end.receive().content.get("text", ""):
            pass
        front_end.send("interrupt_request", channel="control")
        assert front_end.finish(request).content["ename"] == "KeyboardInterrupt"


def test_a_page_goes_to_the_front_end_and_not_to_stdout(front_end: FrontEnd) -> None:
    answered = front_end.run("len?")
    (payload,) = answered.content["payload"]
    assert (payload["source"], payload["start"]) == ("page", 0)
    assert "len(obj, /)" in payload["data"]["text/plain"]
    assert answered.text == ""
    assert front_end.run("1").content["payload"] == []


def test_the_next_input_is_given_once_and_as_it_was_asked_for_last(front_end: FrontEnd) -> None:
    code = "ip = get_ipython()\nfor text in 'ab':\n    ip.set_next_input(text, replace=text == 'b')"
    answered = front_end.run(code)
    assert answered.content["payload"] == [{"source": "set_next_input", "text": "b", "replace": True}]
    assert answered.text == ""


def test_a_payload_that_cannot_be_sent_is_told_and_costs_nothing_else(front_end: FrontEnd) -> None:
    code = "get_ipython().payload_manager.write_payload({'source': 'own', 'data': 'x' * 100_000_000})\nprint('on')"
    answered = front_end.run(code)
    assert (answered.content["status"], answered.content["payload"]) == ("ok", [])
    assert "A payload was not sent" in answered.text


@pytest.mark.parametrize("code", ["exit", "quit()", "get_ipython().ask_exit()"])
def test_a_cell_that_ends_its_kernel_asks_its_front_end_to_end(served: Served, kernel_id: str, code: str) -> None:
    with attached(served, kernel_id) as front_end:
        answered = front_end.run(code)
        assert answered.content["status"] == "ok"
        assert answered.content["payload"] == [{"source": "ask_exit", "keepkernel": False}]
        assert "error" not in answered.kinds
        while front_end.receive().content.get("execution_state") != "dead":
            pass


def test_a_cell_can_ask_its_front_end_to_end_and_keep_the_kernel(front_end: FrontEnd) -> None:
    assert front_end.run("exit(keep_kernel=True)").content["payload"] == [{"source": "ask_exit", "keepkernel": True}]
    assert front_end.run("print('on')").text == "on\n"


def told_by(front_end: FrontEnd, request: JupyterMessage, until: str) -> list[str]:
    """Returns what was written and shown for a request, up to a text."""
    found: list[str] = []
    while until not in "".join(found):
        message = front_end.receive()
        if message.channel == "iopub" and message.kind in ("stream", "display_data"):
            assert message.parent["msg_id"] == request.id, message
            found.append(message.content["text"] if message.kind == "stream" else message.content["data"]["text/plain"])
    return found


TASK = """
import asyncio
gates = {name: asyncio.Event() for name in ('between', 'during', 'awaited')}

async def work():
    for name, gate in gates.items():
        await gate.wait()
        print(name, end='', flush=True)
        display(name.upper())
        print(' and', 'on')

task = asyncio.create_task(work())
"""


def test_what_a_task_writes_and_shows_goes_to_the_cell_that_made_it(front_end: FrontEnd) -> None:
    made = front_end.send("execute_request", {"code": TASK})
    front_end.finish(made)
    front_end.run("pass")
    front_end.send("execute_request", {"code": "gates['between'].set()"})
    assert told_by(front_end, made, "on\n") == ["between", "'BETWEEN'", " and on\n"]
    front_end.send("execute_request", {"code": "gates['during'].set()\nawait asyncio.sleep(0.5)"})
    assert told_by(front_end, made, "on\n") == ["during", "'DURING'", " and on\n"]
    answered = front_end.run("print('mine')\ngates['awaited'].set()\nawait task\nprint('too')")
    assert answered.text == "mine\ntoo\n"


def test_a_client_that_does_not_watch_gets_what_a_task_writes_with_its_own_cell(kernel_id: str, served: Served) -> None:
    with attached(served, kernel_id) as front_end:
        made = front_end.send("execute_request", {"code": TASK})
        front_end.finish(made)
        body = {"code": "gates['between'].set()\nawait asyncio.sleep(0.5)"}
        assert served.post(f"/kernels/{kernel_id}/execute", body).json()["output"] == "between and on\n"
        assert told_by(front_end, made, "on\n") == ["between", "'BETWEEN'", " and on\n"]


def test_a_thread_can_choose_the_cell_that_its_output_goes_to(front_end: FrontEnd) -> None:
    code = """
import threading
gate, parent = threading.Event(), get_ipython().get_parent()

def work():
    token = get_ipython().set_thread_parent(parent)
    gate.wait()
    print('chosen', flush=True)
    get_ipython().reset_thread_parent(token)
    print('not chosen', flush=True)

thread = threading.Thread(target=work)
thread.start()
"""
    made = front_end.send("execute_request", {"code": code})
    front_end.finish(made)
    later = front_end.send("execute_request", {"code": "gate.set()\nthread.join()"})
    parents: dict[str, str] = {}
    while len(parents) < 2:
        message = front_end.receive()
        if message.kind == "stream":
            parents[message.content["text"]] = message.parent["msg_id"]
    assert parents == {"chosen\n": made.id, "not chosen\n": later.id}


def test_requests_on_control_are_answered_in_order_also_while_a_cell_runs(front_end: FrontEnd) -> None:
    kinds = ["kernel_info_request", "usage_request", "debug_request", "create_subshell_request"] * 5
    cell = front_end.send("execute_request", {"code": "print('on', flush=True)\nimport time\ntime.sleep(1000)"})
    while front_end.receive().kind != "stream":
        pass
    sent = [front_end.send(kind, {"seq": 1}, channel="control").id for kind in kinds]
    found: list[str] = []
    while len(found) < len(sent):
        message = front_end.receive()
        if message.channel == "control":
            found.append(message.parent["msg_id"])
    assert found == sent
    front_end.send("interrupt_request", channel="control")
    assert front_end.finish(cell).content["ename"] == "KeyboardInterrupt"


def test_cells_that_come_on_control_run_one_after_the_other_and_say_when_they_began(front_end: FrontEnd) -> None:
    code = "import time\ntime.sleep(0.1)"
    cells = [front_end.send("execute_request", {"code": code}, channel="control") for _ in range(3)]
    replies: list[JupyterMessage] = []
    while len(replies) < 3:
        if (message := front_end.receive()).channel == "control":
            replies.append(message)
    assert [reply.parent["msg_id"] for reply in replies] == [cell.id for cell in cells]
    times = [time for reply in replies for time in (reply.metadata["started"], reply.header["date"])]
    assert times == sorted(times)


def test_debugging_is_refused_politely(front_end: FrontEnd) -> None:
    answered = front_end.ask("debug_request", channel="control", type="request", seq=3, command="initialize")
    assert (answered.content["success"], answered.content["request_seq"]) == (False, 3)
    assert answered.content["message"]
    described = front_end.ask("kernel_info_request").content
    assert (described["debugger"], described["supported_features"]) == (False, [])


def test_a_request_that_is_not_known_is_answered_with_an_error(front_end: FrontEnd) -> None:
    answered = front_end.ask("make_coffee_request")
    assert answered.reply is not None
    assert (answered.reply.kind, answered.content["status"]) == ("make_coffee_reply", "error")
    assert "make_coffee" in answered.content["evalue"]


def test_a_widget_moves_both_ways(front_end: FrontEnd) -> None:
    answered = front_end.run("import ipywidgets\ns = ipywidgets.IntSlider()\ns")
    models = {
        message.content["data"]["state"].get("_model_name"): message.content["comm_id"]
        for message in answered.told
        if message.kind == "comm_open"
    }
    data = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    front_end.run("s.observe(lambda change: print('now', change['new']), 'value')")
    content = {"comm_id": models["IntSliderModel"], "data": data}
    assert front_end.finish(front_end.send("comm_msg", content)).text == "now 7\n"
    moved = front_end.run("s.value = 9").first("comm_msg")
    assert moved.content["data"]["state"] == {"value": 9}


def test_buffers_of_comms_arrive_both_ways(front_end: FrontEnd) -> None:
    front_end.run(
        "import comm\n"
        "def opened(c, m):\n"
        "    c.on_msg(lambda m: c.send({}, buffers=[bytes(b)[::-1] for b in m['buffers']]))\n"
        "comm.get_comm_manager().register_target('echo', opened)"
    )
    front_end.finish(front_end.send("comm_open", {"comm_id": "c", "target_name": "echo", "data": {}}))
    request = front_end.send("comm_msg", {"comm_id": "c", "data": {}}, buffers=(b"abc", b"\x00\xff"))
    assert front_end.finish(request).first("comm_msg").buffers == (b"cba", b"\xff\x00")


def test_all_front_ends_see_what_one_of_them_runs(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as one, attached(served, kernel_id, v1=False) as other:
        other.ask("kernel_info_request")  # it is attached when this is answered
        request = one.send("execute_request", {"code": "print('seen')"})
        while (message := other.receive()).kind != "stream":
            pass
        assert (message.content["text"], message.parent["msg_id"]) == ("seen\n", request.id)
        assert one.finish(request).content["status"] == "ok"
        assert served.http.get(f"/api/kernels/{kernel_id}").json()["connections"] == 2


def test_a_cell_goes_on_when_its_front_end_goes_away(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as one:
        one.send("execute_request", {"code": "print('on')\nimport time\ntime.sleep(0.3)\nx = 'done'"})
        while one.receive().kind != "stream":
            pass
    with attached(served, kernel_id) as other:
        assert other.run("x").first("execute_result").content["data"] == {"text/plain": "'done'"}


def test_a_kernel_that_dies_in_a_cell_is_told_dead(served: Served, front_end: FrontEnd) -> None:
    request = front_end.send("execute_request", {"code": "import os; os.kill(os.getpid(), 9)"})
    states, reply = [], None
    while reply is None or "dead" not in states:
        message = front_end.receive()
        if message.kind == "status":
            states.append(message.content["execution_state"])
        elif message.kind == "execute_reply":
            reply = message
    assert reply.parent["msg_id"] == request.id
    assert reply.content["ename"] == "KernelDied"
    assert front_end.run("1").content["status"] == "error"


def test_a_restart_gives_a_fresh_process_to_the_same_channels(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as front_end:
        front_end.run("x = 1")
        assert served.post(f"/api/kernels/{kernel_id}/restart").json()["id"] == kernel_id
        assert front_end.run("x").content["ename"] == "NameError"
        assert front_end.ask("shutdown_request", channel="control", restart=True).content["restart"] is True
        assert front_end.run("2 + 2").content["status"] == "ok"


def test_a_shutdown_ends_the_kernel(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as front_end:
        assert front_end.ask("shutdown_request", channel="control", restart=False).content["status"] == "ok"
    assert served.http.get(f"/api/kernels/{kernel_id}").status_code == 404


@pytest.mark.parametrize("frame", ["", "[]", b"", b"\xff" * 100, json.dumps({"header": {}})])
def test_what_is_no_message_closes_the_connection_and_not_the_kernel(
    served: Served, kernel_id: str, frame: str | bytes
) -> None:
    with attached(served, kernel_id, v1=False) as front_end:
        front_end.connection.send(frame)
        with pytest.raises(ConnectionClosed) as caught:
            front_end.connection.recv(DEADLINE)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1007
    with attached(served, kernel_id) as front_end:
        assert front_end.run("1").content["status"] == "ok"


def test_there_is_no_way_to_a_kernel_that_is_not_there(served: Served) -> None:
    with pytest.raises(InvalidStatus) as caught, attached(served, "0" * 32):
        pass
    assert caught.value.response.status_code in (403, 404)


def test_a_web_page_of_another_site_does_not_reach_the_channels(served: Served, kernel_id: str) -> None:
    with pytest.raises(InvalidStatus), attached(served, kernel_id, Origin="http://evil.example"):
        pass


def test_a_kernel_of_another_language_is_used_through_the_same_channels(
    key_file: Path, service_home: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "bash_kernel.install", "--prefix", str(tmp_path)], check=True)
    path = str(tmp_path / "share/jupyter")
    with serving(tmp_path, KERNELBOX_HOME=str(service_home), JUPYTER_PATH=path) as served:
        kernel_id = served.post("/api/kernels", {"name": "bash"}).json()["id"]
        with attached(served, kernel_id) as front_end:
            assert front_end.ask("kernel_info_request").content["language_info"]["name"] == "bash"
            assert front_end.run("echo $((6 * 7))").text == "42\n"
            assert "printf" in front_end.ask("complete_request", code="print", cursor_pos=5).content["matches"]
            opened = front_end.send("comm_open", {"comm_id": "c", "target_name": "t", "data": {}})
            assert front_end.finish(opened).kinds == ["status", "status"], "it knows no comms, and says nothing"
            assert front_end.run("echo on").text == "on\n"
        assert served.http.delete(f"/api/kernels/{kernel_id}").status_code == 204


def test_a_request_for_which_there_is_no_room_is_refused_at_once(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as front_end:
        front_end.send("execute_request", {"code": "print('on')\nimport time\ntime.sleep(1000)"})
        while front_end.receive().kind != "stream":
            pass
        for _ in range(10_000):
            front_end.send("kernel_info_request")
        last = front_end.send("kernel_info_request")
        while (message := front_end.receive()).parent.get("msg_id") != last.id:
            pass
        assert (message.kind, message.content["ename"]) == ("kernel_info_reply", "QueueFull")


def test_a_slow_front_end_slows_the_cell_down_and_loses_nothing(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as front_end:
        answered = front_end.run("for n in range(60): print(str(n % 10) * 1_000_000)")
        assert len(answered.text) == 60 * 1_000_001


def test_a_flood_of_interrupts_is_answered_and_holds_up_nobody(served: Served, kernel_id: str) -> None:
    with attached(served, kernel_id) as front_end:
        kernel = int(front_end.run("import os; print(os.getpid())").text)
        os.kill(kernel, signal.SIGSTOP)  # so that they are not answered as fast as they come
        try:
            sent = [front_end.send("interrupt_request", channel="control") for _ in range(2000)]
            assert served.http.get("/health").status_code == 200
        finally:
            os.kill(kernel, signal.SIGCONT)
        replies: dict[str, str] = {}
        while len(replies) < len(sent):
            message = front_end.receive()
            if message.kind == "interrupt_reply":
                replies[message.parent["msg_id"]] = message.content.get("ename", "")
        assert set(replies.values()) <= {"", "QueueFull"}
        assert front_end.run("1").content["status"] == "ok"


def test_interrupts_beyond_the_first_hundred_that_wait_are_refused() -> None:
    assert asyncio.run(count_replies(2000)) == {"": 100, "QueueFull": 1900}


async def count_replies(interrupts: int) -> Counter[str]:
    """Has a kernel interrupted that takes no interrupt before the last was sent; returns what the replies say."""
    all_sent, front_end = asyncio.Event(), Collecting()
    channels = channels_to(interrupt=all_sent.wait)
    for number in range(interrupts):
        channels.take(front_end, JupyterMessage("control", {"msg_id": str(number), "msg_type": "interrupt_request"}))
    all_sent.set()
    return Counter([(await front_end.messages.get()).content.get("ename", "") for _ in range(interrupts)])


class Collecting:
    """A front end that keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[JupyterMessage] = asyncio.Queue()

    async def send(self, message: JupyterMessage) -> None:
        self.messages.put_nowait(message)


async def never(*_: object) -> KernelHandle:
    raise AssertionError("no kernel is needed")


def channels_to(interrupt: Callable[[], Awaitable[object]] = never) -> FrontEndChannels:
    """Returns channels to a kernel of which there is no more than this."""
    here = kernels()
    reached = AsyncKernels(here, KernelOptions(), Toolbox(here.config), advice="")
    return FrontEndChannels(KernelAccess(never, interrupt, never), ChannelRules(ApprovalPolicy(), reached))


def test_requests_that_take_no_time_are_served_in_steps_between_which_others_are() -> None:
    assert asyncio.run(count_steps(500)) >= 500


async def count_steps(requests: int) -> int:
    """Has requests served that need no kernel; returns how often another task was served meanwhile."""
    steps, front_end, channels = 0, Collecting(), channels_to()

    async def be_served() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    for number in range(requests):
        channels.take(front_end, JupyterMessage("shell", {"msg_id": str(number), "msg_type": "odd_request"}))
    other = asyncio.ensure_future(be_served())
    assert channels.working is not None
    await channels.working
    other.cancel()
    assert [front_end.messages.get_nowait().kind for _ in range(requests)] == ["odd_reply"] * requests
    return steps
