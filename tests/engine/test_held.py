"""Kernels held by what a cell left behind: the ladder reaches it, from a client's side and from the kernel's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.support.cells import DEADLINE, Running, eventually, run, value, wait_for_end

from kernelbox import KernelRecord, execute, get_or_create, interrupt, list_kernels, restart, status

TASK = "import asyncio, time\nasync def hold():\n{}\nt = asyncio.ensure_future(hold())"
BLOCKING_TASK = TASK.format("    while True: time.sleep(0.05)")
# An interrupt may come where the inner one is being caught.
STUBBORN_TASK = TASK.format(
    "    while True:\n        try:\n            while True:\n                try: time.sleep(100)\n"
    "                except KeyboardInterrupt: pass\n        except KeyboardInterrupt: pass"
)
# A regular expression that never ends holds the interpreter's lock; the timer lets the cell end first.
GREEDY_THREAD = "import re, threading\nthreading.Timer(0.05, lambda: re.match(r'(a|a)*b', 'a' * 100)).start()"

SLOW_HANDLER = """
import signal, time
signal.signal(signal.SIGALRM, lambda *_: time.sleep(1000))
before = signal.setitimer(signal.ITIMER_REAL, 0.05)
"""


def test_a_task_that_blocks_the_kernel_is_interrupted_when_time_is_up(kernel: KernelRecord) -> None:
    run(kernel, "kept = 1\n" + BLOCKING_TASK)
    waited = execute(kernel, "2", timeout=0.3)
    assert (waited.status, waited.ending, waited.state) == ("timeout", "never ran", "kept")
    assert waited.error is not None
    assert "behind work that an earlier cell had left in the background, which was interrupted" in waited.error.evalue
    after = run(kernel, "kept")
    assert after.return_value == "1"
    assert "A task in the background raised KeyboardInterrupt" in after.stderr


@pytest.mark.slow
@pytest.mark.parametrize("holding", [STUBBORN_TASK, GREEDY_THREAD], ids=["task", "thread"])
def test_what_does_not_stop_is_ended_with_its_kernel_and_the_caller_is_told(holding: str, kernel: KernelRecord) -> None:
    run(kernel, "lost = 1\n" + holding)
    while (waited := execute(kernel, "2", timeout=0.3)).ok:
        pass  # the thread has not begun
    assert (waited.status, waited.state) == ("timeout", "lost"), waited
    assert waited.error is not None
    assert "so the kernel was restarted: its variables are lost" in waited.error.evalue
    assert value(kernel.name, "'lost' in globals()") == "False"


def test_a_cell_of_another_client_is_never_stopped_by_one_that_waits(kernel: KernelRecord, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    go = str(tmp_path / "go")
    read = f"ctypes.PyDLL(None).read(os.open({go!r}, os.O_RDWR), ctypes.create_string_buffer(1), 1)"
    running = Running(kernel, f"import ctypes, os\nprint('in', flush=True)\n{read}\n'done'")
    running.wait_for_output()
    waited = execute(kernel, "1", timeout=0.1)
    assert (waited.ending, waited.state) == ("never ran", "kept")
    (tmp_path / "go").write_bytes(b"x")
    assert running.result().return_value == "'done'"


def test_interrupt_reaches_a_task_that_blocks_the_kernel(kernel: KernelRecord) -> None:
    run(kernel, BLOCKING_TASK)
    eventually(lambda: status(kernel).status == "running")
    assert status(kernel).busy_since is not None
    assert interrupt(kernel) is True
    assert value(kernel, "1 + 1") == "2"
    assert (status(kernel).status, status(kernel).busy_since) == ("idle", None)
    assert interrupt(kernel) is False


@pytest.mark.parametrize(
    "held",
    [
        TASK.format("    import os; os.system('sleep 1000')"),
        TASK.format("    import re; re.match(r'(a|a)*b', 'a' * 100)"),
        TASK.format("    import ctypes; ctypes.PyDLL(None).sleep(1000)"),
        TASK.format("    import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(1000)"),
        "import asyncio, time\nasyncio.get_event_loop().call_soon(time.sleep, 1000)",
        SLOW_HANDLER,
    ],
    ids=["program", "regular expression", "C code", "SIGINT ignored", "callback", "signal handler"],
)
def test_interrupt_reaches_whatever_was_left_in_the_background(held: str, kernel: KernelRecord) -> None:
    run(kernel, "kept = 1\n" + held)
    eventually(lambda: status(kernel).status == "running")
    assert interrupt(kernel) is True
    assert value(kernel, "kept") == "1"


@pytest.mark.slow
def test_a_thread_that_holds_the_interpreter_shows_in_the_status_and_is_not_said_to_be_interrupted(
    kernel: KernelRecord,
) -> None:
    run(kernel, GREEDY_THREAD)
    eventually(lambda: status(kernel).status == "running")
    assert [record.status for record in list_kernels() if record.name == kernel.name] == ["running"]
    assert interrupt(kernel) is False
    assert status(restart(kernel)).status == "idle"
    assert value(kernel, "1 + 1") == "2"


def test_threads_that_let_others_run_hold_nothing(kernel: KernelRecord) -> None:
    work = "def work():\n    while True: sum(range(1000))"
    run(kernel, f"{work}\nimport threading; threading.Thread(target=work).start()")
    assert status(kernel).status == "idle"
    assert [record.status for record in list_kernels() if record.name == kernel.name] == ["idle"]
    assert interrupt(kernel) is False


@pytest.mark.parametrize(
    "hold",
    ["import re; re.match(r'(a|a)*b', 'a' * 100)", "import ctypes; ctypes.PyDLL(None).sleep(1000)"],
    ids=["regular expression", "C code"],
)
def test_interrupt_stops_a_cell_that_holds_the_interpreter(hold: str, kernel: KernelRecord) -> None:
    running = Running(kernel, f"kept = 1\nprint('begun', flush=True)\n{hold}\nimport time; time.sleep(1000)")
    running.wait_for_output()
    assert interrupt(kernel) is True
    result = running.result()
    assert result.error is not None
    assert (result.error.ename, result.ending, result.state) == ("KeyboardInterrupt", "interrupted", "kept")
    assert value(kernel, "kept") == "1"


def test_interrupt_says_that_it_did_not_reach_a_cell_that_heeds_no_signal(kernel: KernelRecord) -> None:
    deaf = "import ctypes, signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"
    running = Running(kernel, f"{deaf}\nprint('begun', flush=True)\nctypes.PyDLL(None).sleep(1000)")
    running.wait_for_output()
    assert interrupt(kernel) is False
    assert status(kernel).status == "running"
    restart(kernel)
    assert running.result().ending == "died"


def test_interrupt_spares_the_programs_of_a_cell_that_takes_its_time_to_stop(
    kernel: KernelRecord, tmp_path: Path
) -> None:
    """A cell that has been reached is not interrupted harder, however long it cleans up."""
    os.mkfifo(tmp_path / "go")
    clean_up = f"open({str(tmp_path / 'go')!r}).read(); print(child.poll())"
    code = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '1000'], process_group=0)\n"
        f"try: print('begun', flush=True); time.sleep(1000)\nexcept KeyboardInterrupt: {clean_up}"
    )
    running = Running(kernel, code)
    running.wait_for_output()
    assert interrupt(kernel) is True
    (tmp_path / "go").write_text("")
    assert running.result().output == "begun\nNone\n"


ABANDON = """
import kernelbox, sys, threading
for item in kernelbox.stream(sys.argv[1], sys.argv[2]):
    print("begun", flush=True)
"""


def test_a_cell_that_swallows_interrupts_does_not_outlive_its_client(kernel: KernelRecord) -> None:
    stubborn = "while True:\n    try:\n        time.sleep(100)\n    except KeyboardInterrupt: pass"
    code = f"import time\nprint('begun', flush=True)\n{stubborn}"
    with subprocess.Popen([sys.executable, "-c", ABANDON, kernel.name, code], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"begun\n"
        client.kill()
    assert kernel.pid is not None
    wait_for_end(kernel.pid)
    told = execute(kernel.name, "1", timeout=DEADLINE)
    assert told.error is not None
    assert "a cell whose client had gone away did not stop when interrupted" in told.error.evalue
    assert value(get_or_create(kernel.name), "1 + 1") == "2"


def test_an_abandoned_cell_that_holds_the_interpreter_is_ended_by_the_next_client(kernel: KernelRecord) -> None:
    code = "print('begun', flush=True)\nimport re\nre.match(r'(a|a)*b', 'a' * 100)"
    with subprocess.Popen([sys.executable, "-c", ABANDON, kernel.name, code], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"begun\n"
        busy, process = 0.3, psutil.Process(kernel.pid)  # by then it has long been in the match
        before = process.cpu_times().user
        eventually(lambda: process.cpu_times().user > before + busy)
        client.kill()
    waited = execute(kernel, "1", timeout=0.3)
    assert waited.error is not None
    assert "a cell whose client had gone away" in waited.error.evalue
    assert value(get_or_create(kernel.name), "1 + 1") == "2"


def test_a_stopped_kernel_is_continued_and_answers(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGSTOP)
    execute(kernel, "1", timeout=0.2)
    eventually(lambda: execute(kernel, "1 + 1", timeout=DEADLINE).return_value == "2")


def test_nothing_is_held_by_tasks_that_give_way(kernel: KernelRecord) -> None:
    run(kernel, TASK.format("    while True: await asyncio.sleep(0.001)"))
    assert [value(kernel, f"{n}") for n in range(20)] == [str(n) for n in range(20)]
    assert interrupt(kernel) is False
    assert value(kernel, "t.done()") == "False"
