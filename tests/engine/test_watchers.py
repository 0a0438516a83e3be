"""Clients that watch a kernel: told what every client's cells say, and what comes between cells, as it comes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, LATER, Running, eventually, run, value

from kernelbox import KernelRecord, execute
from kernelbox.api._configured import kernels
from kernelbox.wire._layout import SOCKET
from kernelbox.wire._messages import Begun, Comm, Display, Done, Message, Output, Watch


class Watcher:
    """A connection that watches."""

    def __init__(self, record: KernelRecord) -> None:
        self.connection = kernels().kernel(record).connect()
        self.connection.send(Watch())

    def until(self, found: Callable[[list[Message]], bool]) -> list[Message]:
        """Collects what is told until something has been found in it."""
        told: list[Message] = []
        deadline = time.monotonic() + DEADLINE
        while not found(told):
            assert not self.connection.ended
            assert time.monotonic() < deadline, f"only {told!r:.1000} was told"
            told += self.connection.receive(1.0)
        return told


@contextlib.contextmanager
def watching(record: KernelRecord) -> Iterator[Watcher]:
    watcher = Watcher(record)
    try:
        yield watcher
    finally:
        watcher.connection.close()


def text(told: list[Message]) -> str:
    return "".join(message.text for message in told if isinstance(message, Output))


def ended(told: list[Message]) -> bool:
    return any(isinstance(message, Done) for message in told)


def test_a_watcher_sees_another_clients_cell_from_beginning_to_end(kernel: KernelRecord) -> None:
    with watching(kernel) as watcher:
        result = run(kernel, "print('hello')\n6 * 7")
        told = watcher.until(ended)
    begun, output, shown, done = told
    assert isinstance(begun, Begun)
    assert isinstance(output, Output)
    assert isinstance(shown, Display)
    assert isinstance(done, Done)
    assert (begun.code, begun.language, begun.execution_count) == (
        "print('hello')\n6 * 7",
        "python",
        result.execution_count,
    )
    assert {output.id, shown.id, done.id} == {begun.id}
    assert (output.text, shown.data, done.status) == ("hello\n", {"text/plain": "42"}, "ok")


def test_a_watcher_that_comes_while_a_cell_runs_is_told_so(kernel: KernelRecord, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    cell = Running(
        kernel, f"import pathlib, time\nprint(1)\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)"
    )
    cell.wait_for_output()
    with watching(kernel) as watcher:
        (begun,) = watcher.until(bool)
        assert isinstance(begun, Begun)
        gate.touch()
        (done,) = watcher.until(ended)
        assert isinstance(done, Done)
        assert done.id == begun.id
    assert cell.result().ok


def test_what_threads_write_show_and_send_between_cells_is_told_at_once(kernel: KernelRecord, tmp_path: Path) -> None:
    run(kernel, LATER)
    gate = tmp_path / "gate"
    run(
        kernel,
        "import comm, sys\n"
        "def work():\n"
        "    print('text'); display(5)\n"
        "    comm.create_comm(target_name='t', data={'a': 1}, buffers=[b'raw'])\n"
        "    sys.stdout.write('begun')\n"
        f"later({str(gate)!r}, work)",
    )
    with watching(kernel) as watcher:
        gate.touch()
        told = watcher.until(lambda told: text(told).endswith("begun"))
        assert [type(message) for message in told] == [Output, Display, Comm, Output]
        assert {message.id for message in told if isinstance(message, Output | Display | Comm)} == {""}
        assert isinstance(told[2], Comm)
        assert (told[2].content["data"], told[2].buffers) == ({"a": 1}, [b"raw"])
        assert execute(kernel, "1").output == "text\nbegun", "a client that does not watch gets it with its next cell"


def test_what_tasks_print_between_cells_is_told_at_once(kernel: KernelRecord) -> None:
    with watching(kernel) as watcher:
        run(
            kernel,
            "import asyncio\n"
            "async def tick():\n"
            "    for n in range(3):\n"
            "        await asyncio.sleep(0.05)\n"
            "        print(n)\n"
            "task = asyncio.ensure_future(tick())",
        )
        assert text(watcher.until(lambda told: text(told) == "0\n1\n2\n")) == "0\n1\n2\n"


def test_what_came_before_the_first_watcher_is_told_once(kernel: KernelRecord, tmp_path: Path) -> None:
    run(kernel, LATER)
    gate, done = tmp_path / "gate", tmp_path / "done"
    run(kernel, f"later({str(gate)!r}, lambda: (print('late'), pathlib.Path({str(done)!r}).touch()))")
    gate.touch()
    eventually(done.exists)
    with watching(kernel) as watcher:
        assert text(watcher.until(bool)) == "late\n"
    with watching(kernel) as watcher:
        assert run(kernel, "print('next')").output == "late\nnext\n"
        assert text(watcher.until(ended)) == "next\n"


@pytest.mark.slow
def test_much_that_threads_write_between_cells_arrives_whole(kernel: KernelRecord, tmp_path: Path) -> None:
    run(kernel, LATER)
    gate = tmp_path / "gate"
    run(kernel, f"later({str(gate)!r}, lambda: [print(str(n % 10) * 1_000_000) for n in range(40)])")
    with watching(kernel) as watcher:
        gate.touch()
        told = watcher.until(lambda told: len(text(told)) >= 40 * 1_000_001)
        assert text(told) == "".join(str(n % 10) * 1_000_000 + "\n" for n in range(40))


@pytest.mark.slow
def test_a_watcher_that_reads_nothing_is_let_go_and_keeps_no_cell_from_its_end(kernel: KernelRecord) -> None:
    with watching(kernel) as idle, watching(kernel) as watcher:
        cell = Running(kernel, "for _ in range(20): print('x' * 1_000_000)")
        assert len(text(watcher.until(ended))) == 20 * 1_000_001
        assert cell.result().ok
        assert value(kernel, "1") == "1"
        while not idle.connection.ended:
            idle.connection.receive(1.0)


def test_a_cell_cannot_watch_its_own_kernel(kernel: KernelRecord) -> None:
    socket = Path(kernel.connection_file).with_name(SOCKET)
    code = (
        "import os, socket\n"
        "from kernelbox.wire._framing import encode\n"
        "from kernelbox.wire._messages import Watch\n"
        f"s = socket.socket(socket.AF_UNIX); s.connect({str(socket)!r})\n"
        "s.sendall(encode(Watch())); s.settimeout(0.5)"
    )
    assert execute(kernel, code).ok
    result = execute(kernel, "print('secret')\ntry: print(s.recv(1000))\nexcept TimeoutError: print('nothing')")
    assert result.output == "secret\nnothing\n"
