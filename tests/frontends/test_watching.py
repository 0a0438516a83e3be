"""What front ends see that none of them has asked for: others' cells, what comes between cells, and a kernel's end."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cells import LATER
from tests.support.front_ends import FrontEnd, attached
from tests.support.server import Served, serving

from kernelbox.server.jupyter._front_end_message import JupyterMessage


@pytest.fixture
def one(served: Served, kernel_id: str) -> Iterator[FrontEnd]:
    with attached(served, kernel_id) as front_end:
        front_end.run("None")  # it follows the kernel from now on: before, it might miss what other faces run
        yield front_end


def until(front_end: FrontEnd, kind: str, **content: object) -> list[JupyterMessage]:
    """Collects messages up to the first of a kind with this content."""
    told = []
    while True:
        told.append(front_end.receive())
        if told[-1].kind == kind and content.items() <= told[-1].content.items():
            return told


def state(front_end: FrontEnd, name: str) -> list[JupyterMessage]:
    return until(front_end, "status", execution_state=name)


def text(told: list[JupyterMessage]) -> str:
    return "".join(message.content["text"] for message in told if message.kind == "stream")


def hexed(kernel_id: str) -> str:
    return uuid.UUID(kernel_id).hex


def test_what_a_thread_prints_shows_and_sends_between_cells_comes_at_once(one: FrontEnd, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    one.run(LATER)
    request = one.send(
        "execute_request",
        {
            "code": "import comm\n"
            "def work():\n"
            "    print('late'); display(5)\n"
            "    comm.create_comm(target_name='t', data={'a': 1}, buffers=[b'raw'])\n"
            f"later({str(gate)!r}, work)"
        },
    )
    one.finish(request)
    gate.touch()
    told = until(one, "comm_open")
    assert [message.kind for message in told] == ["stream", "display_data", "comm_open"]
    assert {message.parent["msg_id"] for message in told} == {request.id}
    assert (text(told), told[2].buffers) == ("late\n", (b"raw",))
    assert one.run("print('next')").text == "next\n", "it is not told again"


def test_a_widget_moves_while_no_cell_runs(one: FrontEnd) -> None:
    code = (
        "import asyncio, ipywidgets\n"
        "s = ipywidgets.IntProgress()\n"
        "async def work():\n"
        "    for n in range(1, 4):\n"
        "        await asyncio.sleep(0.02)\n"
        "        s.value = n\n"
        "task = asyncio.ensure_future(work())"
    )
    request = one.send("execute_request", {"code": code})
    values: list[int] = []
    while values[-1:] != [3]:
        message = one.receive()
        assert message.parent["msg_id"] == request.id
        if message.kind == "comm_msg" and "value" in message.content["data"]["state"]:
            values.append(message.content["data"]["state"]["value"])
    assert values == [1, 2, 3]


def test_a_cell_of_another_face_is_told_as_one_of_another_front_end(
    served: Served, kernel_id: str, one: FrontEnd
) -> None:
    served.execute(hexed(kernel_id), "print('from afar')\n6 * 7")
    told = state(one, "idle")
    assert [message.kind for message in told] == ["status", "execute_input", "stream", "execute_result", "status"]
    assert told[0].content["execution_state"] == "busy"
    assert told[1].content["code"] == "print('from afar')\n6 * 7"
    assert text(told) == "from afar\n"
    (parent,) = {message.parent["msg_id"] for message in told}
    assert parent
    assert told[0].parent["msg_type"] == "execute_request"
    assert one.run("1").content["execution_count"] == told[1].content["execution_count"] + 1


def test_an_error_of_another_faces_cell_is_told(served: Served, kernel_id: str, one: FrontEnd) -> None:
    served.execute(hexed(kernel_id), "1 / 0")
    told = state(one, "idle")
    assert [message.kind for message in told] == ["status", "execute_input", "error", "status"]
    assert told[2].content["ename"] == "ZeroDivisionError"


def test_a_bash_cell_of_another_face_is_told_as_a_front_end_would_write_it(
    served: Served, kernel_id: str, one: FrontEnd
) -> None:
    served.execute(hexed(kernel_id), "echo hi", language="bash")
    told = state(one, "idle")
    assert (told[1].content["code"], text(told)) == ("%%bash\necho hi", "hi\n")


def test_cells_of_another_face_before_and_after_ones_own_are_told_in_order(
    served: Served, kernel_id: str, one: FrontEnd
) -> None:
    for turn in range(20):
        served.execute(hexed(kernel_id), f"print('theirs {turn}')")
        request = one.send("execute_request", {"code": f"print('ours {turn}')"})
        told: list[JupyterMessage] = []
        while not told or told[-1].kind != "execute_reply":
            told.append(one.receive())
        assert text(told) == f"theirs {turn}\nours {turn}\n"
        assert told[-1].parent["msg_id"] == request.id


def test_ones_own_cell_waits_behind_that_of_another_face_and_both_are_told(
    served: Served, kernel_id: str, one: FrontEnd, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)"
    code = f"print('on')\n{wait}\nprint('off')"
    assert served.post(f"/kernels/{hexed(kernel_id)}/jobs", {"code": code}).status_code == 202
    until(one, "stream")
    request = one.send("execute_request", {"code": "print('ours')"})
    gate.touch()
    told = until(one, "execute_reply")
    assert text(told) == "off\nours\n"
    assert told[-1].parent["msg_id"] == request.id


def test_a_front_end_that_comes_while_another_faces_cell_runs_sees_the_kernel_busy(
    served: Served, kernel_id: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\nprint('off')"
    assert served.post(f"/kernels/{hexed(kernel_id)}/jobs", {"code": code}).status_code == 202
    with attached(served, kernel_id) as front_end:
        state(front_end, "busy")
        gate.touch()
        assert text(state(front_end, "idle")) == "off\n"


def test_front_ends_of_another_server_see_the_same(
    served: Served, kernel_id: str, one: FrontEnd, service_home: Path, tmp_path: Path
) -> None:
    with (
        serving(tmp_path, KERNELBOX_HOME=str(service_home)) as other,
        attached(other, kernel_id) as there,
    ):
        there.ask("kernel_info_request")
        request = there.send("execute_request", {"code": "print('there')"})
        told = state(one, "idle")
        assert text(told) == "there\n"
        assert {message.parent["msg_id"] for message in told} == {request.id}


def pid_of(one: FrontEnd) -> int:
    return int(one.run("import os; print(os.getpid())").text)


def test_the_death_of_an_idle_kernel_is_told_at_once_with_its_cause(one: FrontEnd) -> None:
    os.kill(pid_of(one), signal.SIGKILL)
    told = state(one, "dead")
    assert "SIGKILL" in text(told)
    answered = one.run("1")
    assert answered.content["ename"] == "KernelDied"


def test_the_death_in_a_cell_is_told_once_and_after_its_reply(one: FrontEnd) -> None:
    request = one.send("execute_request", {"code": "import os; os.kill(os.getpid(), 9)"})
    told = state(one, "dead")
    kinds = [message.kind for message in told]
    assert kinds[kinds.index("execute_reply") :] == ["execute_reply", "status", "status"]
    assert text(told) == ""
    assert one.finish(one.send("kernel_info_request")).content["status"] == "ok"
    assert request.id


def test_a_restart_by_another_face_is_told_and_the_kernel_is_used_again(
    served: Served, kernel_id: str, one: FrontEnd
) -> None:
    one.run("x = 1")
    assert served.post(f"/kernels/{hexed(kernel_id)}/restart").status_code == 200
    told = [message for message in state(one, "restarting") if message.kind == "status"]
    assert [message.content["execution_state"] for message in told] == ["restarting"]
    state(one, "idle")
    assert one.run("x").content["ename"] == "NameError"


def test_a_dead_kernel_that_another_face_restarts_comes_back(served: Served, kernel_id: str, one: FrontEnd) -> None:
    os.kill(pid_of(one), signal.SIGKILL)
    state(one, "dead")
    assert served.post(f"/kernels/{hexed(kernel_id)}/restart").status_code == 200
    state(one, "restarting")
    state(one, "idle")
    assert one.run("1").content["status"] == "ok"


def test_the_end_by_another_face_is_told(served: Served, kernel_id: str, one: FrontEnd) -> None:
    assert served.http.delete(f"/kernels/{hexed(kernel_id)}").status_code == 200
    told = state(one, "dead")
    assert text(told) == ""
    assert one.run("1").content["status"] == "error"


def test_ending_a_kernel_that_runs_a_cell_ends_the_cell_and_then_tells_the_death(
    served: Served, kernel_id: str, one: FrontEnd
) -> None:
    request = one.send("execute_request", {"code": "print('on')\nimport time\ntime.sleep(1000)"})
    waiting = one.send("execute_request", {"code": "1"})
    until(one, "stream")
    assert served.http.delete(f"/api/kernels/{kernel_id}").status_code == 204
    told = state(one, "dead")
    replies = {message.parent["msg_id"]: message.content for message in told if message.kind == "execute_reply"}
    assert replies[request.id]["ename"] == "KernelDied"
    if waiting.id in replies:
        assert replies[waiting.id]["status"] in ("aborted", "error")
    assert served.http.get(f"/api/kernels/{kernel_id}").status_code == 404


def test_a_cell_that_closes_the_connection_of_front_ends_is_told_and_they_go_on(one: FrontEnd) -> None:
    code = (
        "import os, socket, threading, time\n"
        "def close():\n"
        "    time.sleep(0.2)\n"
        "    for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "        try: s = socket.socket(fileno=os.dup(fd))\n"
        "        except OSError: continue\n"
        "        if s.family == socket.AF_UNIX and not s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):\n"
        "            s.shutdown(socket.SHUT_RDWR)\n"
        "        s.close()\n"
        "threading.Thread(target=close).start()"
    )
    one.run(code)
    assert "missing" in text(until(one, "stream"))
    assert one.run("1").content["status"] == "ok"
