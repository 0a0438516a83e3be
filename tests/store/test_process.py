"""A process is signalled only if it is certainly the one that is meant."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.cells import eventually
from tests.support.store import run_python

from kernelbox.host.process._process import Process, read_start_time

EXHAUSTED = """
import os, resource, signal, subprocess, sys
from kernelbox.host.process._process import Process, read_start_time
victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
right = read_start_time(victim.pid)
stale, fresh = Process(victim.pid, right - 1), Process(victim.pid, right)
opened = Process(victim.pid, right)
opened.fileno()
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
print(stale.signal(signal.SIGTERM), stale.signal_group(signal.SIGTERM), stale.kill_descendants(since=0.0))
print(fresh.signal(signal.SIGTERM), fresh.alive, opened.signal(0))
for fd in held: os.close(fd)
print(victim.poll())
victim.kill(); victim.wait()
"""


def test_without_free_descriptors_no_process_is_signalled_that_may_be_another() -> None:
    assert run_python(EXHAUSTED).stdout == "False False False\nFalse True True\nNone\n"


def test_a_process_with_another_start_time_is_not_signalled() -> None:
    code = (
        "import signal, subprocess, sys\nfrom kernelbox.host.process._process import Process, read_start_time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        "wrong = Process(other.pid, read_start_time(other.pid) + 1)\n"
        "print(wrong.alive, wrong.signal(signal.SIGKILL), wrong.signal_group(signal.SIGKILL), other.poll())\n"
        "other.kill(); other.wait()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False False None\n"


def test_a_process_that_has_ended_waits_for_its_parent_until_that_has_taken_note() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = Process(child.pid, read_start_time(child.pid) or 0)
        assert process.waiting_keeper == 0
        assert child.stdin is not None
        child.stdin.close()
        eventually(lambda: process.waiting_keeper == os.getpid())
        assert Process(child.pid, process.start_time + 1).waiting_keeper == 0
    assert process.waiting_keeper == 0
