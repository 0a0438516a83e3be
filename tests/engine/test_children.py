"""Processes that cells start: who is signalled, who is reaped, and who is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.bounded import BEGUN
from tests.support.cells import eventually, is_running, run, value

from kernelbox import KernelRecord, execute

_ZOMBIES = """
def zombies():
    import os
    found = []
    for task in os.listdir("/proc/self/task"):
        for pid in open(f"/proc/self/task/{task}/children").read().split():
            try:
                if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z":
                    found.append(pid)
            except OSError:
                pass
    return found
"""


def _zombies_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state == "Z":
                found.append(int(child))
    return found


@pytest.mark.slow
def test_a_sigterm_right_after_the_fork_ends_the_child(kernel: KernelRecord) -> None:
    code = """
import os, signal
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
"""
    run(kernel, code)


def test_a_child_keeps_the_signal_handlers_of_its_cell(kernel: KernelRecord) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
pid = os.fork()
while pid == 0:
    time.sleep(0.01)
os.kill(pid, signal.SIGTERM)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
    assert run(kernel, code).return_value == "7"


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "signal.SIG_DFL"])
def test_a_child_has_the_handlers_that_its_cell_sees_and_not_the_kernels(handler: str, kernel: KernelRecord) -> None:
    code = f"""
import os, signal, time
signal.signal(signal.SIGINT, {handler})
pid = os.fork()
if pid == 0:
    seen = signal.getsignal(signal.SIGINT) is {handler} and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGINT, {handler})
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        os._exit(7 if seen else 1)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""
    assert run(kernel, code).return_value == ("7" if "default" in handler else "-2")


def test_a_fork_leaves_the_threads_signal_mask_as_it_was(kernel: KernelRecord) -> None:
    code = """
import os, signal, threading
masks = []
def fork():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pid = os.fork()
    if pid == 0:
        os._exit(signal.pthread_sigmask(signal.SIG_BLOCK, ()) != before)
    masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before)
    masks.append(os.waitpid(pid, 0)[1] == 0)
threads = [threading.Thread(target=fork) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
all(masks), len(masks)
"""
    assert run(kernel, code).return_value == "(True, 8)"


@pytest.mark.parametrize(
    "started", ["subprocess.Popen(['sleep', '600'])", "multiprocessing.Process(target=time.sleep, args=(600,))"]
)
def test_a_timeout_leaves_the_processes_of_earlier_cells_alone(started: str, kernel: KernelRecord) -> None:
    run(
        kernel,
        f"import multiprocessing, subprocess, time\nserver = {started}\nif hasattr(server, 'start'): server.start()",
    )
    pid = int(value(kernel, "server.pid"))
    result = execute(kernel, "time.sleep(60)", timeout=0.2)
    assert (result.status, result.state) == ("timeout", "kept")
    assert is_running(pid)
    assert value(kernel, "getattr(server, 'returncode', None), getattr(server, 'exitcode', None)") == "(None, None)"
    run(kernel, "server.kill(); server.wait() if hasattr(server, 'wait') else server.join()")


def test_a_harder_interrupt_spares_the_processes_of_earlier_cells_and_what_they_start(
    kernel: KernelRecord, tmp_path: Path
) -> None:
    script = "while [ ! -e go ]; do sleep 0.01; done; sleep 600 & echo $! > pid.new; mv pid.new pid; wait"
    run(
        kernel, f"import subprocess, os, time\nserver = subprocess.Popen({script!r}, shell=True, cwd={str(tmp_path)!r})"
    )
    code = f"""
open({str(tmp_path / "go")!r}, "w").close()
while not os.path.exists({str(tmp_path / "pid")!r}):
    time.sleep(0.01)
try:
    time.sleep(60)
except KeyboardInterrupt:
    os.system("sleep 600")
"""
    result = execute(kernel, code, timeout=BEGUN)
    assert (result.status, result.state) == ("timeout", "kept")
    worker = int((tmp_path / "pid").read_text())
    assert is_running(worker)
    assert value(kernel, "server.poll() is None") == "True"


def test_a_timeout_calls_the_cells_own_handler_once(kernel: KernelRecord) -> None:
    code = """
import signal, time
calls = []
signal.signal(signal.SIGINT, lambda *_: calls.append(1))
end = time.monotonic() + 3
while time.monotonic() < end:
    time.sleep(0.01)
"""
    result = execute(kernel, code, timeout=BEGUN)
    assert (result.status, result.state) == ("timeout", "kept")
    assert value(kernel, "len(calls)") == "1"


def test_a_timeout_does_not_call_a_handler_for_sigcont(kernel: KernelRecord) -> None:
    code = """
import signal, time
def fail(*_):
    raise RuntimeError("con" "tinued")
signal.signal(signal.SIGCONT, fail)
time.sleep(60)
"""
    result = execute(kernel, code, timeout=0.2)
    assert (result.status, result.state) == ("timeout", "kept")
    assert "continued" not in result.text


@pytest.mark.parametrize(
    "start",
    [
        'os.system("sleep .05 &")',
        'subprocess.run("sleep .05 &", shell=True)',
        'subprocess.Popen(["sh", "-c", "sleep .05 & sleep .01"]).wait()',
        'get_ipython().system("sleep .05 &")',
        'threading.Thread(target=os.system, args=("sleep .05 &",)).start()',
    ],
)
def test_orphans_leave_no_zombies(start: str, kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    run(kernel, f"import os, subprocess, threading\n{start}")
    run(kernel, _ZOMBIES)
    pid = kernel.pid
    eventually(lambda: len(list(Path(f"/proc/{pid}/task/{pid}").joinpath("children").read_text().split())) == 0)


def test_orphans_are_reaped_while_their_cell_still_runs(kernel: KernelRecord) -> None:
    run(kernel, _ZOMBIES)
    code = """
import os, time
for _ in range(20):
    os.system("true &")
seen = 0
while zombies() and seen < 3000:
    time.sleep(0.01)
    seen += 1
zombies()
"""
    assert run(kernel, code).return_value == "[]"


def test_exit_statuses_that_cells_ask_for_late_are_theirs(kernel: KernelRecord) -> None:
    code = """
import asyncio, multiprocessing, os, subprocess, sys, threading
popen = subprocess.Popen(["sh", "-c", "exit 3"])
posix = subprocess.Popen(["sh", "-c", "exit 4"], close_fds=False)
spawned = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 5"], os.environ)
nowait = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "exit 6")
forked = os.fork()
if forked == 0:
    os._exit(7)
pty, _fd = os.forkpty()
if pty == 0:
    os._exit(8)
process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(9,))
process.start()
in_thread = []
thread = threading.Thread(target=lambda: in_thread.append(subprocess.Popen(["sh", "-c", "exit 10"])))
thread.start(); thread.join()
child = await asyncio.create_subprocess_exec("sh", "-c", "exit 11")
os.system("true &")
"""
    run(kernel, code)
    run(kernel, _ZOMBIES)
    pid = kernel.pid
    assert pid is not None
    eventually(lambda: len(_zombies_of(pid)) >= 8)
    for _ in range(3):
        run(kernel, "import time; time.sleep(0.3)")
    got = value(
        kernel,
        "[popen.wait(), posix.wait(), "
        "*(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in (spawned, nowait, forked, pty)),"
        " (process.join(), process.exitcode)[1], in_thread[0].wait(), await child.wait()]",
    )
    assert got == "[3, 4, 5, 6, 7, 8, 9, 10, 11]"


def test_a_stopped_kernel_is_still_continued_by_its_timeout(kernel: KernelRecord) -> None:
    code = "import os, signal, time; os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)"
    result = execute(kernel, code, timeout=0.3)
    assert (result.status, result.state) == ("timeout", "kept")
