"""Kernels of Jupyter's own kind behind our channels: ipykernel, with comms, history, input and other clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cells import LATER
from tests.support.front_ends import FrontEnd, attached
from tests.support.server import Served, serving

from kernelbox.server.jupyter._front_end_message import JupyterMessage

from .test_watching import state, text, until

ECHO = """
import comm
def opened(c, m):
    @c.on_msg
    def _(m):
        print('got', m['content']['data'])
        c.send({}, buffers=[bytes(b)[::-1] for b in m['buffers']])
comm.get_comm_manager().register_target('echo', opened)
"""


@pytest.fixture(scope="module")
def foreign(
    key_file: Path, service_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, str]]:
    """Serves one kernel that is ipykernel's."""
    prefix = tmp_path_factory.mktemp("foreign")
    command = [sys.executable, "-m", "ipykernel", "install", "--name", "ipykernel", "--prefix", str(prefix)]
    environment = {**os.environ, "TMPDIR": str(prefix)}  # where it leaves a directory
    subprocess.run(command, check=True, capture_output=True, env=environment)
    path = str(prefix / "share/jupyter")
    with serving(prefix, KERNELBOX_HOME=str(service_home), JUPYTER_PATH=path) as served:
        kernel_id = served.post("/api/kernels", {"name": "ipykernel"}).json()["id"]
        yield served, kernel_id
        served.http.delete(f"/api/kernels/{kernel_id}")


@pytest.fixture
def one(foreign: tuple[Served, str]) -> Iterator[FrontEnd]:
    with attached(*foreign) as front_end:
        front_end.run("pass")
        yield front_end


@pytest.mark.slow
def test_it_describes_itself(one: FrontEnd) -> None:
    info = one.ask("kernel_info_request").content
    assert (info["implementation"], info["language_info"]["codemirror_mode"]["name"]) == ("ipython", "ipython")
    assert info["debugger"] is False


def test_a_cell_is_told_from_busy_to_idle(one: FrontEnd) -> None:
    answered = one.run("print('hello'); 6 * 7")
    assert answered.kinds == ["status", "execute_input", "stream", "execute_result", "status"]
    assert answered.first("execute_input").content["execution_count"] == answered.content["execution_count"]


def test_input_is_answered(one: FrontEnd) -> None:
    asked: list[JupyterMessage] = []

    def answer(message: JupyterMessage) -> str:
        asked.append(message)
        return "Ada"

    assert one.run("print('hello', input('name? '))", answer, allow_stdin=True).text == "hello Ada\n"
    assert one.run("import getpass; print(getpass.getpass('word? '))", answer, allow_stdin=True).text == "Ada\n"
    assert [(message.content["prompt"], message.content["password"]) for message in asked] == [
        ("name? ", False),
        ("word? ", True),
    ]


def test_input_is_refused_where_nobody_answers(foreign: tuple[Served, str], one: FrontEnd) -> None:
    assert one.run("input()", allow_stdin=False).content["ename"] == "StdinNotImplementedError"
    with attached(*foreign) as asked:
        request = asked.send("execute_request", {"code": "input()", "allow_stdin": True})
        until(asked, "input_request")
    told = until(one, "error")
    assert (told[-1].parent["msg_id"], told[-1].content["ename"]) == (request.id, "EOFError")


def test_a_cell_that_waits_for_input_is_interrupted(one: FrontEnd) -> None:
    request = one.send("execute_request", {"code": "input()", "allow_stdin": True})
    until(one, "input_request")
    one.send("interrupt_request", channel="control")
    reply = until(one, "execute_reply")[-1]
    assert (reply.parent["msg_id"], reply.content["ename"]) == (request.id, "KeyboardInterrupt")
    assert one.run("1").content["status"] == "ok"


@pytest.mark.slow
def test_input_is_answered_on_a_connection_that_was_used_for_questions(foreign: tuple[Served, str]) -> None:
    with attached(*foreign) as front_end:
        front_end.ask("complete_request", code="pri", cursor_pos=3)
    with attached(*foreign) as front_end:
        assert front_end.run("print(input())", lambda message: "Ada", allow_stdin=True).text == "Ada\n"


def test_history_is_told(one: FrontEnd) -> None:
    one.run("first = 'abc'")
    tail = one.ask("history_request", hist_access_type="tail", n=1, raw=True, output=False).content
    assert tail["history"][-1][2] == "first = 'abc'"
    found = one.ask("history_request", hist_access_type="search", pattern="first*", n=5, raw=True, output=False).content
    assert "first = 'abc'" in [entry[2] for entry in found["history"]]


def test_comms_go_both_ways_with_their_buffers(one: FrontEnd) -> None:
    one.run(ECHO)
    one.finish(one.send("comm_open", {"comm_id": "c", "target_name": "echo", "data": {}}))
    assert one.ask("comm_info_request", target_name="echo").content["comms"] == {"c": {"target_name": "echo"}}
    answered = one.finish(one.send("comm_msg", {"comm_id": "c", "data": {"a": 1}}, buffers=(b"abc", b"\x00\xff")))
    assert answered.text == "got {'a': 1}\n"
    assert answered.first("comm_msg").buffers == (b"cba", b"\xff\x00")


def test_a_widget_moves_both_ways(one: FrontEnd) -> None:
    answered = one.run("import ipywidgets\ns = ipywidgets.IntSlider()\ns")
    opened = [message for message in answered.told if message.kind == "comm_open"]
    models = {each.content["data"]["state"].get("_model_name"): each for each in opened}
    slider = models["IntSliderModel"]
    assert slider.metadata["version"]
    data = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    one.run("s.observe(lambda change: print('now', change['new']), 'value')")
    moved = one.finish(one.send("comm_msg", {"comm_id": slider.content["comm_id"], "data": data}))
    assert moved.text == "now 7\n"
    assert one.run("s.value = 9").first("comm_msg").content["data"]["state"] == {"value": 9}


def test_what_threads_print_and_send_between_cells_comes_at_once(one: FrontEnd, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = (
        f"{LATER}\nimport comm\n"
        "def work():\n"
        "    print('late', flush=True)\n"
        "    comm.create_comm(target_name='t', data={'a': 1})\n"
        f"later({str(gate)!r}, work)"
    )
    request = one.send("execute_request", {"code": code})
    one.finish(request)
    gate.touch()
    told = until(one, "comm_open")
    assert text(told) == "late\n"
    assert {message.parent["msg_id"] for message in told} == {request.id}
    assert one.run("print('next')").text == "next\n"


def test_a_cell_of_another_face_is_told(foreign: tuple[Served, str], one: FrontEnd) -> None:
    served, kernel_id = foreign
    served.execute(uuid.UUID(kernel_id).hex, "print('from afar')\n6 * 7")
    told = state(one, "idle")
    assert [message.kind for message in told] == ["status", "execute_input", "stream", "execute_result", "status"]
    assert told[1].content["code"] == "print('from afar')\n6 * 7"
    served.execute(uuid.UUID(kernel_id).hex, "1 / 0")
    assert until(one, "error")[-1].content["ename"] == "ZeroDivisionError"
    state(one, "idle")
    assert one.run("1").content["status"] == "ok"


def test_its_death_between_cells_is_told_and_it_comes_back(foreign: tuple[Served, str], one: FrontEnd) -> None:
    served, kernel_id = foreign
    os.kill(int(one.run("import os; print(os.getpid())").text), signal.SIGKILL)
    assert "SIGKILL" in text(state(one, "dead"))
    assert served.post(f"/api/kernels/{kernel_id}/restart").status_code == 200
    state(one, "restarting")
    state(one, "idle")
    assert one.run("input()", lambda message: "x", allow_stdin=True).content["status"] == "ok"
