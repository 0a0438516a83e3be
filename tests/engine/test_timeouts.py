"""Timeouts and interrupts: the kernel is free again at once, and keeps its variables if that is at all possible."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import DEADLINE, Running, eventually, run, until_queued, value

from kernelbox import KernelRecord, execute, get_or_create, interrupt

# Cells that go on for ever, and that an interrupt must stop without loss.
ENDLESS = {
    "a busy loop": "while True: pass",
    "a sleep": "import time; time.sleep(100)",
    "a top-level await": "import asyncio; await asyncio.sleep(100)",
    "a blocking call in async code": (
        "import asyncio, time\nasync def block(): time.sleep(100)\nawait asyncio.gather(block(), asyncio.sleep(100))"
    ),
    "a task that the cell waits for": "import asyncio; await asyncio.create_task(asyncio.sleep(100))",
    "a shell command": "!sleep 100",
    "a captured shell command": "x = !sleep 100",
    "os.system": "import os; os.system('sleep 100')",
    "subprocess.run": "import subprocess; subprocess.run(['sleep', '100'])",
    "subprocess.run that captures": "import subprocess; subprocess.run(['sleep', '100'], capture_output=True)",
    "a loop of numpy calls": "import numpy; a = numpy.ones((300, 300))\nwhile True: a @ a",
    "a catastrophic regex": "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "a command that ignores SIGINT": "!trap '' INT; sleep 100",
    "a child that ignores SIGINT": "import subprocess; subprocess.run(['sh', '-c', \"trap '' INT; sleep 100\"])",
    "a bash cell magic": "%%bash\ntrap '' INT\nsleep 100",
    "a pipe that nobody writes to": "import os; r, w = os.pipe(); os.read(r, 1)",
    "a lock that nobody releases": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "a thread that is joined": (
        "import threading, time; t = threading.Thread(target=time.sleep, args=(100,), daemon=True)\nt.start(); t.join()"
    ),
    "a C call that waits": "import ctypes; ctypes.CDLL(None).sleep(100)",
    "a C call that holds the interpreter": "import ctypes; ctypes.PyDLL(None).sleep(100)",
    "a C call that waits for a signal": "import ctypes; ctypes.CDLL(None).pause()",
    "a __repr__ that sleeps": ("import time\nclass Slow:\n    def __repr__(self): time.sleep(100)\nSlow()"),
    "an exception whose __str__ sleeps": (
        "import time\nclass Slow(Exception):\n    def __str__(self): time.sleep(100)\nraise Slow()"
    ),
    "a __del__ that sleeps": (
        "import time\nclass Slow:\n    def __del__(self): time.sleep(100)\ns = Slow(); del s; time.sleep(100)"
    ),
    "a slow finally": "import time\ntry: time.sleep(100)\nfinally: time.sleep(0.1)",
    "output without end": "while True: print('x' * 100)",
    "output of a child without end": "!yes",
    "a handler of SIGINT left by an earlier cell": "while True: pass",
    "SIGINT that would end the process": (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); time.sleep(100)"
    ),
    "a handler of SIGINT that was put back": (
        "import signal, time\nbefore = signal.signal(signal.SIGINT, lambda *_: None)\n"
        "signal.signal(signal.SIGINT, before)\ntime.sleep(100)"
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_timeout_stops_the_cell_keeps_the_variables_and_the_next_call_answers(
    what: str, kernel: KernelRecord
) -> None:
    run(kernel, "kept = 41")
    if "handler of SIGINT" in what:
        run(kernel, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    result = execute(kernel, ENDLESS[what], timeout=BEGUN)
    assert (result.status, result.state, result.ending) == ("timeout", "kept", "interrupted"), result.text
    assert result.error is not None
    assert result.error.ename == "TimeoutError"
    assert f"timed out after {BEGUN:g} s" in result.error.evalue
    assert value(kernel, "kept + 1") == "42"
    print(f"{what}: {result.duration_ms} ms")


# Cells that no interrupt stops.
STUBBORN = {
    "a loop that swallows KeyboardInterrupt": (
        "import time\nwhile True:\n    try:\n        time.sleep(100)\n    except KeyboardInterrupt:\n        pass"
    ),
    "a loop that swallows cancellations": (
        "import asyncio\nwhile True:\n    try:\n        await asyncio.sleep(100)\n"
        "    except asyncio.CancelledError:\n        pass"
    ),
    "C code that looks at no signals": "sum(range(10**13))",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", STUBBORN)
def test_a_cell_that_cannot_be_interrupted_is_killed_and_its_kernel_restarted(what: str, kernel: KernelRecord) -> None:
    run(kernel, "lost = 1")
    result = execute(kernel, "print('so far')\n" + STUBBORN[what], timeout=BEGUN)
    assert (result.status, result.state, result.ending) == ("timeout", "lost", "restarted"), result.text
    assert result.error is not None
    assert result.error.ename == "TimeoutError"
    assert "variables are lost" in result.error.evalue
    assert result.output == "so far\n"
    again = get_or_create(kernel.name)
    assert (again.kernel_id, again.name) == (kernel.kernel_id, kernel.name)
    assert again.pid != kernel.pid
    assert value(kernel.name, "'lost' in globals()") == "False"
    print(f"{what}: {result.duration_ms} ms")


def test_what_was_printed_before_a_timeout_is_in_the_result(kernel: KernelRecord) -> None:
    result = execute(kernel, "print('before'); import time; time.sleep(100)", timeout=BEGUN)
    assert result.output == "before\n"
    assert result.text.startswith("before\n")


def test_a_daemon_that_keeps_stdout_open_holds_nobody_up(kernel: KernelRecord) -> None:
    result = run(kernel, "import subprocess; p = subprocess.Popen(['sleep', '300']); print('on')")
    assert result.output == "on\n"
    result = run(kernel, "!sleep 300 & echo on")
    assert result.output == "on\n"
    assert value(kernel, "p.poll() is None") == "True"
    result = run(kernel, "x = !sleep 300 & echo on\nx")
    assert result.return_value == "['on']"


def test_a_call_that_times_out_in_the_queue_never_touches_the_cell_before_it(
    kernel: KernelRecord, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    waiting = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
    first = Running(kernel, f"print('in')\n{waiting}\nx = 'whole'").wait_for_output()
    result = execute(kernel, "x = 'broken'", timeout=0.3)
    assert (result.status, result.state, result.ending) == ("timeout", "kept", "never ran")
    assert result.error is not None
    assert result.error.ename == "TimeoutError"
    go_on.touch()
    assert first.result().ok
    assert value(kernel, "x") == "'whole'"


def test_a_busy_kernel_is_not_dead(kernel: KernelRecord) -> None:
    cell = Running(kernel, "print('in'); import time; time.sleep(100)").wait_for_output()
    again = get_or_create(kernel.name)
    assert (again.pid, again.kernel_id, again.status) == (kernel.pid, kernel.kernel_id, "running")
    assert interrupt(kernel)
    assert cell.result().ending == "interrupted"


def test_a_failing_cell_does_not_touch_the_cells_behind_it(kernel: KernelRecord) -> None:
    first = Running(kernel, f"print('in')\n{until_queued(5)}1/0").wait_for_output()
    behind = [Running(kernel, f"print({n})") for n in range(5)]
    assert first.result().status == "error"
    assert [cell.result().output for cell in behind] == [f"{n}\n" for n in range(5)]


def test_a_cell_killed_by_its_timeout_says_so_to_the_cells_behind_it(kernel: KernelRecord) -> None:
    first = Running(kernel, "print('in')\n" + STUBBORN["a loop that swallows KeyboardInterrupt"], timeout=2)
    first.wait_for_output()
    behind = execute(kernel, "1", timeout=DEADLINE)
    assert first.result().ending == "restarted"
    assert (behind.status, behind.ending, behind.state) == ("error", "died", "lost")
    assert behind.error is not None
    assert "did not stop when interrupted" in behind.error.evalue
    assert value(kernel.name, "1 + 1") == "2"


def test_a_kernel_that_was_stopped_is_woken_by_the_timeout_and_keeps_its_variables(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    run(kernel, "kept = 1")
    cell = Running(kernel, "print('in')\nwhile True: pass", timeout=BEGUN).wait_for_output()
    os.kill(kernel.pid, signal.SIGSTOP)
    result = cell.result()
    assert (result.status, result.state) == ("timeout", "kept")
    assert value(kernel, "kept") == "1"


def test_a_kernel_that_was_stopped_while_idle_answers_after_the_first_timeout(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    run(kernel, "kept = 1")
    os.kill(kernel.pid, signal.SIGSTOP)
    result = execute(kernel, "import time; time.sleep(1000)\nkept = 2", timeout=0.3)
    assert result.error is not None
    said = {
        "never ran": "timed out after 0.3 s before the kernel had taken it; it never ran",
        # It has been continued because the time was up, and may take the request before that is withdrawn.
        "interrupted": "timed out after 0.3 s; the cell was interrupted and the kernel kept its variables",
    }
    assert (result.state, result.error.evalue) == ("kept", said[result.ending])
    assert value(kernel, "kept") == "1"


def test_a_timeout_shorter_than_the_start_of_the_cell_is_a_timeout(kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    for _ in range(10):
        result = execute(kernel, "import time; time.sleep(100)", timeout=1e-6)
        assert (result.status, result.state) == ("timeout", "kept")
        assert value(kernel, "kept") == "1"


def test_an_interrupt_of_an_idle_kernel_does_nothing(kernel: KernelRecord) -> None:
    assert not interrupt(kernel)
    assert value(kernel, "1 + 1") == "2"


def test_interrupts_at_the_end_of_a_cell_and_twice_harm_nothing(kernel: KernelRecord) -> None:
    run(kernel, "kept = 1")
    for _ in range(30):
        cell = Running(kernel, "print('in'); import time; time.sleep(0.01)").wait_for_output()
        interrupt(kernel)
        interrupt(kernel)
        result = cell.result()
        assert result.ok or result.ending == "interrupted", result.text
    assert value(kernel, "kept") == "1"


def test_an_interrupt_leaves_tasks_in_the_background_alone(kernel: KernelRecord) -> None:
    run(
        kernel,
        "import asyncio\nticks = 0\nasync def tick():\n    global ticks\n    while True:\n"
        "        ticks += 1\n        await asyncio.sleep(0.001)\nticker = asyncio.create_task(tick())",
    )
    execute(kernel, "await asyncio.sleep(100)", timeout=0.3)
    execute(kernel, "import time; time.sleep(100)", timeout=0.3)
    assert value(kernel, "ticker.done()") == "False"
    run(kernel, "before = ticks\nwhile ticks < before + 5: await asyncio.sleep(0.01)")


def test_an_interrupted_cell_says_keyboard_interrupt_to_its_caller(kernel: KernelRecord) -> None:
    for code in ("print('in')\nwhile True: pass", "print('in')\nimport asyncio; await asyncio.sleep(100)"):
        cell = Running(kernel, code).wait_for_output()
        assert interrupt(kernel)
        result = cell.result()
        assert (result.status, result.ending, result.state) == ("error", "interrupted", "kept")
        assert result.error is not None
        assert result.error.ename == "KeyboardInterrupt"


def test_interrupts_reach_a_kernel_whose_opener_ignores_sigint(home: object) -> None:
    def ignore_and_open() -> KernelRecord:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return get_or_create("nohup")
        finally:
            signal.signal(signal.SIGINT, previous)

    assert threading.current_thread() is threading.main_thread()
    kernel = ignore_and_open()
    cell = Running(kernel, "print('in')\nwhile True: pass").wait_for_output()
    assert interrupt(kernel)
    assert cell.result().ending == "interrupted"
    cell = Running(kernel, "print('in')\nimport subprocess; subprocess.run(['sleep', '100'])").wait_for_output()
    assert interrupt(kernel)
    assert cell.result().ending == "interrupted"


def test_the_keyboard_interrupt_that_a_cell_catches_lets_it_go_on(kernel: KernelRecord) -> None:
    code = "try:\n    print('in')\n    while True: pass\nexcept KeyboardInterrupt:\n    print('caught')\n7"
    cell = Running(kernel, code).wait_for_output()
    eventually(lambda: interrupt(kernel))
    result = cell.result()
    assert result.ok
    assert (result.output, result.return_value) == ("in\ncaught\n", "7")


def test_an_interrupt_in_the_middle_of_printing_loses_and_repeats_nothing(
    kernel: KernelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBOX_OUTPUT_CHAR_LIMIT", "0")
    for attempt in range(25):
        code = "n = 0\nwhile True:\n    print(n); n += 1"
        result = execute(kernel, code, timeout=0.03 + attempt / 1000)
        assert result.state == "kept"
        lines = result.output.removesuffix("\n").split("\n") if result.output else []
        assert lines == [str(n) for n in range(len(lines))]
        assert run(kernel, "pass").output == ""


def test_a_cell_too_long_for_a_stopped_kernel_to_take_times_out_like_any(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGSTOP)
    try:
        result = execute(kernel, f"{'x' * 2_000_000!r}\nwhile True: pass", timeout=0.5)
    finally:
        os.kill(kernel.pid, signal.SIGCONT)
    assert (result.status, result.state) == ("timeout", "kept")
    assert value(kernel, "1 + 1") == "2"
