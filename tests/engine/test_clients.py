"""Several clients of one kernel: executions queue in order, and each gets exactly its own output."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells import DEADLINE, Running, connected, eventually, parent_of, run, stopped, until_queued, value

from kernelbox import KernelRecord, execute, get_or_create, interrupt, list_kernels, restart, status, stream
from kernelbox.host.engines.own._own_connection import OwnConnection
from kernelbox.wire._messages import Answer, Ask, Done, Execute, Interrupt, Message, Output


def receive_until(connection: OwnConnection, kind: type[Message], id: str) -> Any:
    """Waits for a message about an execution, and returns it."""
    while True:
        for message in connection.receive(DEADLINE):
            if isinstance(message, kind) and getattr(message, "id", "") == id:
                return message


def test_threads_share_a_kernel_and_each_gets_its_own_output(kernel: KernelRecord) -> None:
    run(kernel, "total = 0")

    def work(number: int) -> None:
        for turn in range(20):
            result = execute(kernel, f"total += 1\nprint('{number}-{turn}')\n({number}, {turn})", timeout=DEADLINE)
            assert (result.output, result.return_value) == (f"{number}-{turn}\n", f"({number}, {turn})")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert value(kernel, "total") == "160"


CLIENT = """
import json, sys
from kernelbox import execute
name, number = sys.argv[1:]
seen = []
for turn in range(30):
    result = execute(name, f"total += 1\\nprint('{number}-{turn}')\\n'{number}'", timeout=60)
    seen.append([result.output, result.return_value])
print(json.dumps(seen))
"""


def test_processes_share_a_kernel_and_each_gets_its_own_output(kernel: KernelRecord) -> None:
    run(kernel, "total = 0")
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT, kernel.name, str(n)], stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    for number, client in enumerate(clients):
        seen = json.loads(client.communicate(timeout=DEADLINE)[0])
        assert seen == [[f"{number}-{turn}\n", f"'{number}'"] for turn in range(30)]
    assert value(kernel, "total") == "120"


def test_a_cell_opens_no_file_however_its_kernel_is_named(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = KernelRecord.from_dict(status(kernel.name).to_dict())
    restart(kernel.name)
    ways: list[KernelRecord | str] = [status(kernel.name), kernel.name, kernel.kernel_id, old]
    assert old.pid != status(kernel.name).pid
    for way in ways:
        run(way, "1")
    opened, really_open = [], os.open

    def note(path: Any, *args: Any, **options: Any) -> int:
        opened.append(path)
        return really_open(path, *args, **options)

    monkeypatch.setattr(os, "open", note)
    for way in ways:
        run(way, "1")
        assert opened == [], way


def test_executions_run_in_the_order_in_which_they_came(kernel: KernelRecord) -> None:
    first = Running(kernel, f"order = []; print('in')\n{until_queued(10)}").wait_for_output()
    ended: list[str] = []
    with connected(kernel) as connection:
        for n in range(10):
            connection.send(Execute(f"cell{n}", f"order.append({n})"))
        while len(ended) < 10:
            messages = connection.receive(DEADLINE)
            assert messages, "no answer"
            ended += [message.id for message in messages if isinstance(message, Done)]
    assert first.result().ok
    assert ended == [f"cell{n}" for n in range(10)]
    assert value(kernel, "order") == str(list(range(10)))


def test_50_clients_open_one_name_and_get_one_kernel(home: object) -> None:
    with ThreadPoolExecutor(16) as pool:
        pids = set(pool.map(lambda _: get_or_create("shared").pid, range(50)))
    assert len(pids) == 1


def test_one_clients_interrupt_stops_only_the_running_cell(kernel: KernelRecord) -> None:
    first = Running(kernel, "print('in')\nwhile True: pass").wait_for_output()
    behind = [Running(kernel, f"print({n})") for n in range(3)]
    assert interrupt(kernel)
    assert first.result().ending == "interrupted"
    assert [cell.result().output for cell in behind] == ["0\n", "1\n", "2\n"]


def test_an_interrupt_that_names_another_execution_does_not_touch_the_cell_that_runs(
    kernel: KernelRecord, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    waiting = f"import os, time\nprint('begun', flush=True)\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
    cell = Running(kernel, waiting).wait_for_output()
    with connected(kernel) as connection:
        connection.send(Execute("queued", "1"))
        connection.send(Interrupt("another"))
        connection.send(Interrupt("queued"))  # it is withdrawn, and the kernel says so: it has read the one before
        receive_until(connection, Done, "queued")
    go_on.touch()
    assert cell.result().ok


def test_only_the_client_that_was_asked_can_answer(kernel: KernelRecord, tmp_path: Path) -> None:
    with connected(kernel) as asked, connected(kernel) as other:
        asked.send(Execute("cell", f"!touch {tmp_path / 'made'}", approve_shell=True))
        question = receive_until(asked, Ask, "cell")
        assert asked._questions is not None
        answer = Answer("cell", question.ask, True)
        asked._questions.sign(answer)  # whatever the other could know
        other.send(answer)
        other.send(Execute("queued", "1"))
        other.send(Interrupt("queued"))  # it is withdrawn, and the kernel says so: it has read the answer
        receive_until(other, Done, "queued")
        asked.send(Answer("cell", question.ask, False, "rejected by the one that was asked"))
        assert "rejected by the one that was asked" in receive_until(asked, Done, "cell").evalue
    assert not (tmp_path / "made").exists()


# Has the thread that is about to interrupt a cell wait until the next has begun, if it can begin meanwhile.
_LATE_SIGNAL = """
import os, signal, sys, threading
striking, begun, main = threading.Event(), threading.Event(), threading.get_ident()
def wait_for_the_next(event, arguments):
    if event == "os.kill" and arguments == (os.getpid(), signal.SIGINT) and threading.get_ident() != main:
        striking.set()
        begun.wait(0.5)
sys.addaudithook(wait_for_the_next)
"""


def test_an_interrupt_that_comes_as_its_cell_ends_does_not_strike_the_cell_behind_it(kernel: KernelRecord) -> None:
    run(kernel, _LATE_SIGNAL)
    with connected(kernel) as connection:
        connection.send(Execute("first", "print('begun', flush=True)\n_ = striking.wait()"))
        receive_until(connection, Output, "first")
        connection.send(Execute("second", "begun.set()\n_ = threading.Event().wait(0.5)"))
        connection.send(Interrupt("first"))
        second = receive_until(connection, Done, "second")
    assert (second.status, second.interrupted) == ("ok", False), second.ename


def test_what_one_clients_thread_prints_goes_to_whoever_runs_a_cell(kernel: KernelRecord) -> None:
    run(
        kernel,
        "import threading\nprinted = threading.Event()\n"
        "def speak(): print('from the thread'); printed.set()\nt = threading.Timer(0.05, speak); t.start()",
    )
    assert "from the thread\n" in run(kernel, "_ = printed.wait(60)").output


def test_a_stream_that_is_left_when_its_cell_has_ended_leaves_the_kernel_as_it_is(kernel: KernelRecord) -> None:
    run(kernel, "x = 41")
    steps = stream(kernel, "import sys\nprint(1, flush=True)\nfor n in range(5): print(n); print(n, file=sys.stderr)")
    next(steps)
    eventually(lambda: list_kernels()[0].status == "idle")
    next(steps)  # what else there was, the end of the cell too, has come with this
    del steps
    assert value(kernel, "x") == "41"


@pytest.mark.parametrize(
    "cell",
    [
        "!(echo begun; cat) < {pipe}\nprint(_exit_code)",
        "import subprocess\nprint(subprocess.run('(echo begun; cat) < {pipe}', shell=True).returncode)",
    ],
    ids=["!", "subprocess"],
)
def test_a_harder_interrupt_that_comes_too_late_harms_no_program_of_another_cell(
    kernel: KernelRecord, tmp_path: Path, cell: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # a program reads on until it is closed
    running = Running(kernel, cell.format(pipe=tmp_path / "pipe")).wait_for_output()
    with connected(kernel) as other:
        other.send(Interrupt("0123456789abcdef", harder=True))
        other.send(Execute("queued", "1"))
        other.send(Interrupt("queued"))  # it is withdrawn, and the kernel says so: it has read the one before
        receive_until(other, Done, "queued")
    os.close(writer)
    assert running.result().output == "begun\n0\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("kind", ["kernel", "template"])
def test_another_user_is_not_let_in(own_home: Path, kind: str) -> None:
    kernel = get_or_create("mine")
    directory = Path(kernel.connection_file).parent
    path = directory / "socket" if kind == "kernel" else next(directory.parent.glob("template-*[0-9a-f]"))
    opened = {part: part.stat().st_mode for part in (own_home, directory.parent, directory, path)}
    for part in opened:
        part.chmod(0o777)
    code = "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(20); print(s.recv(1))"  # noqa: E501
    try:
        answer = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    finally:
        for part, mode in opened.items():
            part.chmod(mode)
    assert answer.stdout == "b''\n"


def test_a_client_that_does_not_read_keeps_nobody_from_interrupting(kernel: KernelRecord) -> None:
    with connected(kernel) as idler:
        idler.send(Execute("e", "import sys\nwhile True: print('x' * 1000); print('y' * 1000, file=sys.stderr)"))
        eventually(lambda: _unread(idler) > 20_000)
        with connected(kernel) as passer_by:
            passer_by.send(Execute("f", ""))
        interrupt(kernel.name)
        eventually(lambda: list_kernels()[0].status == "idle")


def _unread(connection: OwnConnection) -> int:
    return int.from_bytes(fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


SERVE_AS_ANOTHER = """
import os, socket, sys
os.setuid(65534)
os.umask(0)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
client, _ = listener.accept()
print(len(client.recv(1)), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_nothing_is_sent_to_a_socket_that_another_user_serves(own_home: Path) -> None:
    kernel = get_or_create("mine")
    path = Path(kernel.connection_file).parent / "socket"
    with tempfile.TemporaryDirectory() as shared, contextlib.ExitStack() as stack:
        os.chmod(shared, 0o777)
        other = f"{shared}/other"
        server = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", SERVE_AS_ANOTHER, other], stdout=subprocess.PIPE, text=True)
        )
        stack.callback(server.kill)
        stack.enter_context(stopped(parent_of(kernel.pid or 0)))
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        path.unlink()
        os.link(other, path)
        trying = "try: kernelbox.execute('mine', 'secret = 1')\nexcept kernelbox.StoreFailed as exc: print(exc)"
        code = f"import kernelbox\n{trying}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "is served by another user (uid 65534); nothing was sent to it" in done.stdout
        assert server.stdout.readline() == "0\n"
