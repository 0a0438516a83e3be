"""Cells that find the socket of their client and close it, or write half a message: the kernel lives, and goes on."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, command_line, eventually, is_running, run, value

from kernelbox import CodeExecutionError, CodeExecutor, KernelDied, KernelRecord, execute, status
from kernelbox.api._configured import kernels

FIND = """
import os, socket, stat, time
def clients():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode): continue
            sock = socket.socket(fileno=os.dup(fd))
            sock.getpeername()
            yield sock
        except OSError: pass
def half():
    for sock in clients(): sock.send(b"\\0\\0\\x10\\0\\0\\0\\0\\0[")
kept = 42
"""

CLOSED = {
    "both ways": "for sock in clients(): sock.shutdown(2)\nprint('on')",
    "and goes on": "for sock in clients(): sock.shutdown(2)\ntime.sleep(1000)",
    "for writing": "for sock in clients(): sock.shutdown(1)\ntime.sleep(1000)",
    "for reading": "for sock in clients(): sock.shutdown(0)\ntime.sleep(1000)",
}


@pytest.mark.parametrize("code", CLOSED.values(), ids=CLOSED)
def test_a_cell_that_closes_its_clients_connection_is_told_and_the_kernel_lives(
    code: str, kernel: KernelRecord
) -> None:
    run(kernel, FIND)
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None
    assert (result.status, result.ending, result.state) == ("error", "interrupted", "kept")
    assert result.error.ename == "ConnectionLost"
    assert "the kernel goes on" in result.error.evalue
    assert value(kernel, "kept") == "42"
    assert status(kernel).pid == kernel.pid


HALF = {
    "says no more": "half()",
    "prints": "half()\nprint('x')",
}


@pytest.mark.parametrize("code", HALF.values(), ids=HALF)
def test_a_cell_that_writes_half_a_message_is_not_waited_for(code: str, kernel: KernelRecord) -> None:
    run(kernel, FIND)
    result = execute(kernel, code, timeout=DEADLINE)
    assert result.error is not None
    assert (result.status, result.ending, result.state) == ("error", "interrupted", "kept")
    assert "half a message" in result.error.evalue
    assert value(kernel, "kept") == "42"


def test_a_cell_that_writes_half_a_message_and_goes_on_is_interrupted_when_its_time_is_up(kernel: KernelRecord) -> None:
    run(kernel, FIND)
    result = execute(kernel, "half()\nwhile True: pass", timeout=BEGUN)
    assert result.error is not None
    assert (result.status, result.ending, result.state) == ("timeout", "interrupted", "kept")
    assert result.error.evalue.startswith(f"timed out after {BEGUN:g} s; ")
    assert "half a message" in result.error.evalue
    assert value(kernel, "kept") == "42"


def test_a_message_that_comes_in_pieces_is_waited_for(kernel: KernelRecord) -> None:
    code = (
        'import struct\nraw = b\'["Output","%s","stdout"]\' % get_ipython().kernel.outbox.execution_id.encode()\n'
        "frame = struct.pack('!II', len(raw), 5) + raw + b'whole'\n"
        "sock = get_ipython().kernel.outbox.peer.sock\n"
        "print('begun', flush=True)\nsock.send(frame[:20])\ntime.sleep(3)\nsock.send(frame[20:])"
    )
    run(kernel, FIND)
    assert run(kernel, code).output == "begun\nwhole"


def test_a_process_that_became_another_program_is_ended_and_what_it_wrote_is_there(kernel: KernelRecord) -> None:
    code = "import os; print('last'); os.execv('/bin/sleep', ['sleep', '1000'])"
    result = execute(kernel.name, code, timeout=DEADLINE)
    assert (result.status, result.ending, result.state) == ("error", "died", "lost")
    assert result.error is not None
    assert "another program" in result.error.evalue
    assert result.output == "last\n"
    assert kernel.pid is not None
    assert not is_running(kernel.pid)
    assert run(kernel.name, "print('fresh')").output == "fresh\n"


def test_a_process_that_became_another_program_between_cells_is_told_of_once(kernel: KernelRecord) -> None:
    pid = kernel.pid
    assert pid is not None
    later = "import asyncio, os\nloop = asyncio.get_running_loop()\n"
    run(kernel, later + "loop.call_later(0.1, os.execv, '/bin/sleep', ['sleep', '1000'])")
    eventually(lambda: command_line(pid).startswith("sleep"))
    told, fresh = (execute(kernel.name, "print('fresh')", timeout=DEADLINE) for _ in range(2))
    assert told.error is not None
    assert "another program" in told.error.evalue
    assert fresh.output == "fresh\n"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("code", ["for sock in clients(): sock.shutdown(2)", "half()"])
def test_an_executor_is_told_the_same(code: str) -> None:
    async def scenario() -> tuple[str, str | None]:
        async with asyncio.timeout(DEADLINE), CodeExecutor() as executor:
            await executor.execute(FIND)
            with pytest.raises(CodeExecutionError) as raised:
                await executor.execute(code, timeout=DEADLINE)
            return raised.value.ename, (await executor.execute("kept")).text

    assert asyncio.run(scenario()) == ("ConnectionLost", "42")


# A repr that closes the connections so often, while the kernel answers what its variables are.
CLOSING_REPR = """
class Closing:
    def __init__(self, times): self.times = times
    def __repr__(self):
        if self.times > 0:
            self.times -= 1
            for sock in clients(): sock.shutdown(2)
        return 'told'
"""


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("times", [1, 2])
def test_a_question_whose_connection_is_closed_is_put_again(times: int) -> None:
    async def scenario() -> tuple[dict[str, str], str | None]:
        async with asyncio.timeout(DEADLINE), CodeExecutor() as executor:
            await executor.execute(f"{FIND}{CLOSING_REPR}closing = Closing({times})")
            variables = {variable.name: variable.preview for variable in await executor.variables(timeout=DEADLINE)}
            return variables, (await executor.execute("kept")).text

    variables, kept = asyncio.run(scenario())
    assert (variables["closing"], kept) == ("told", "42")


@pytest.mark.usefixtures("home")
def test_a_question_whose_connection_is_closed_each_time_is_not_answered_in_time_and_the_kernel_lives() -> None:
    async def scenario() -> str | None:
        async with asyncio.timeout(DEADLINE), CodeExecutor() as executor:
            await executor.execute(f"{FIND}{CLOSING_REPR}closing = Closing(1_000_000)")
            with pytest.raises(TimeoutError):
                await executor.variables(timeout=2)
            return (await executor.execute("kept")).text

    assert asyncio.run(scenario()) == "42"


@pytest.mark.usefixtures("home")
def test_a_question_to_a_kernel_that_dies_of_it_says_so() -> None:
    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), CodeExecutor() as executor:
            await executor.execute("import os\nclass Ending:\n  def __repr__(self): os._exit(3)\nending = Ending()")
            for _ in range(2):  # the second finds it dead
                with pytest.raises(KernelDied, match=r"status 3; await executor\.reset\(\) for a fresh one$"):
                    await executor.variables(timeout=DEADLINE)
            await executor.reset()
            assert (await executor.execute("6 * 7")).text == "42"

    asyncio.run(scenario())


def test_a_sign_of_life_is_asked_for_again_if_its_connection_is_closed(kernel: KernelRecord) -> None:
    run(kernel, FIND)
    code = (
        "def close(*_):\n  for sock in clients(): sock.shutdown(2)\n  get_ipython().check_complete = check\n"
        "check = get_ipython().check_complete\n"
        "get_ipython().check_complete = lambda code: (close(), check(code))[1]"
    )
    run(kernel, code)
    assert kernels().kernel(kernel).ask("is_complete", {"code": ""}, patience=DEADLINE) is not None
