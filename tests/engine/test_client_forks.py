"""A client that forks: streams and connections belong to the process that opened them, and a fork makes its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, eventually, value
from tests.support.command_line import WAITING_CELL, run_program

from kernelbox import execute, get_or_create

# The parent has read the first output of a cell, and the cell goes on when the child has ended.
STREAMING = f"""{WAITING_CELL}
import gc, os
from contextlib import suppress
from kernelbox import KernelBoxError, OutputItem, execute, stream

steps = stream("forked", code, timeout=60)
first = next(steps)
child = os.fork()
if child == 0:
    status = 1
    try:
        CHILD
        status = 0
    finally:
        END
_, status = os.waitpid(child, 0)
assert status == 0, status
open(go, "w").close()
*outputs, result = steps
print(first.text, *(item.text for item in outputs), result.status, result.ending, execute("forked", "x").return_value)
"""

LEAVE_AT_ONCE = "os._exit(status)"
LEAVE_IN_ORDER = "sys.exit(status)"


def fork_in_a_client(script: str, directory: Path, *, child: str, end: str = LEAVE_AT_ONCE) -> str:
    script = script.replace("CHILD", child.replace("\n", "\n        ")).replace("END", end)
    return run_program(script, directory)


@pytest.mark.parametrize(
    ("child", "end"),
    [
        pytest.param("steps.close()", LEAVE_AT_ONCE, id="closes the stream"),
        pytest.param("del steps\ngc.collect()", LEAVE_AT_ONCE, id="forgets the stream"),
        pytest.param("pass", LEAVE_IN_ORDER, id="exits with the stream open"),
        pytest.param(
            "with suppress(KeyboardInterrupt): steps.throw(KeyboardInterrupt)",
            LEAVE_AT_ONCE,
            id="interrupts the stream",
        ),
        pytest.param(
            "try:\n    next(steps)\nexcept KernelBoxError as exc:\n    assert 'fork' in str(exc), exc\n"
            "else:\n    raise AssertionError('read the stream of its parent')",
            LEAVE_IN_ORDER,
            id="reads on",
        ),
    ],
)
def test_what_a_fork_does_to_an_open_stream_leaves_the_parents_cell_alone(
    home: Path, tmp_path: Path, child: str, end: str
) -> None:
    assert fork_in_a_client(STREAMING, tmp_path, child=child, end=end) == "begun\n ended\n success finished 42\n"


def test_a_fork_runs_cells_of_its_own_while_the_parents_stream_is_open(home: Path, tmp_path: Path) -> None:
    get_or_create("other")
    child = "assert execute('other', '6 * 7').return_value == '42'"
    assert fork_in_a_client(STREAMING, tmp_path, child=child) == "begun\n ended\n success finished 42\n"


def test_a_fork_that_waits_behind_its_parents_cell_gets_its_own_result(home: Path, tmp_path: Path) -> None:
    child = "open(go, 'w').close()\nassert execute('forked', '6 * 7').return_value == '42'"
    assert fork_in_a_client(STREAMING, tmp_path, child=child) == "begun\n ended\n success finished 42\n"


POOLED = """
import multiprocessing, sys
from kernelbox import execute

def work(n):
    return [execute("forked", f"print('w{n}', {n * i}); {n * i}").text for i in range(5)]

assert execute("forked", "x = 42").ok
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        ours = pool.map_async(work, range(1, 9))
        mine = [work(100) for _ in range(4)]
        answers = ours.get(60)
    for n, lines in [*enumerate(answers, 1), *((100, lines) for lines in mine)]:
        assert lines == [f"w{n} {n * i}\\n{n * i}" for i in range(5)], (n, lines)
    print(execute("forked", "x").return_value)
"""


def test_the_workers_of_a_pool_and_their_parent_share_no_connection(home: Path, tmp_path: Path) -> None:
    assert fork_in_a_client(POOLED, tmp_path, child="") == "42\n"


KILLED = """
import os, signal, sys, time
from kernelbox import stream

steps = stream("forked", "try:\\n    print('begun', flush=True)\\n    while True: pass\\nfinally: left = 1", timeout=60)
next(steps)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    while True: time.sleep(60)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_fork_does_not_hide_from_the_kernel_that_its_parent_was_killed(home: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        try:
            process.wait(DEADLINE)
            assert value("forked", "left") == "1"
        finally:
            os.kill(fork, signal.SIGKILL)


HELD = """
import os, sys
from kernelbox import execute, get_or_create

record = get_or_create("forked")
assert execute(record, "1").ok
read, write = os.pipe()
if os.fork() == 0:
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    kinds = [os.readlink(path) for path in paths if os.path.lexists(path)]
    os.write(write, repr([kind for kind in kinds if kind.startswith(("socket:", "anon_inode:[pidfd"))]).encode())
    os._exit(0)
os.wait()
print(os.read(read, 10000).decode())
"""


def test_a_fork_holds_no_descriptor_of_its_parents_connections(home: Path, tmp_path: Path) -> None:
    assert fork_in_a_client(HELD, tmp_path, child="") == "[]\n"


def test_a_kernel_of_a_forked_process_ends_with_it_and_not_with_its_parent(home: Path, tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from kernelbox import execute, get_or_create\n"
        "parents = get_or_create('parents', lifetime='process')\n"
        "execute(parents, 'x = 1')\n"
        "if os.fork() == 0:\n"
        "    assert execute(get_or_create('childs', lifetime='process'), '1').ok\n"
        "    os._exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "print(execute(parents, 'x').return_value)\n"
    )
    assert fork_in_a_client(script, tmp_path, child="") == "1\n"
    eventually(lambda: execute("childs", "'fresh'").return_value == "'fresh'")
