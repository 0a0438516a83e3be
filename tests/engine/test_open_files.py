"""Few open files: what a limit (`ulimit -n`) keeps us from is an error that says so, and nothing is lost by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE, run, value

from kernelbox import KernelRecord, execute, list_kernels, status

# What users do, each in a process of its own whose limit is lowered first. With "fresh", nothing is known of the home.
LOWER = """
import os, resource, sys
import kernelbox, kernelbox.host.files._home as home, kernelbox.host.files._key as key
name, fresh, limits = sys.argv[1], sys.argv[2] == "fresh", map(int, sys.argv[3:])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
kernelbox.interrupt(name), kernelbox.list_kernels(), kernelbox.Kernel  # what these import is not what is tested
acts = {
    "execute": lambda: kernelbox.execute(name, "x").return_value == "42",
    "stream": lambda: list(kernelbox.stream(name, "x"))[-1].return_value == "42",
    "list": lambda: name in [record.name for record in kernelbox.list_kernels()],
    "status": lambda: kernelbox.status(name).alive,
    "interrupt": lambda: kernelbox.interrupt(name) is False,
    "destroy": lambda: kernelbox.destroy("no such kernel") is False,
    "create": lambda: kernelbox.create("new") is None,
    "open": lambda: kernelbox.execute("new", "1") is None,
    "restart": lambda: kernelbox.restart(name) is None,
}
for limit in limits:
    for act, function in acts.items():
        if os.fork() == 0:
            if fresh: home._fitting.clear(), home._used.clear(), key._keys.clear()
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                fine = function()
            except (kernelbox.StoreFailed, kernelbox.StartFailed) as exc:
                fine = "raise its limit (ulimit -n)" in str(exc) or exc
            except BaseException as exc:
                fine = exc
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            if fine is not True: print(limit, act, repr(fine), flush=True)
            os._exit(0)
        os.wait()
"""


@pytest.mark.parametrize("knowledge", ["fresh", "known"])
def test_what_few_files_keep_us_from_is_said_and_nothing_is_lost(kernel: KernelRecord, knowledge: str) -> None:
    run(kernel, "x = 42")
    limits = [*range(3, 24), 32, 48, 63]
    done = subprocess.run(
        [sys.executable, "-c", LOWER, kernel.name, knowledge, *map(str, limits)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert value(kernel, "x") == "42"
    assert status(kernel).pid == kernel.pid
    assert [record.name for record in list_kernels()] == [kernel.name]


@pytest.mark.parametrize("limit", [4, 5, 6, 8, 10, 16, 20, 40, 63])
@pytest.mark.parametrize("words", ["exec --name new 1", "create --name new"])
def test_a_command_with_few_files_says_so_in_a_sentence(home: Path, limit: int, words: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {limit}; exec "$0" -m kernelbox {words}', sys.executable],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("kernelbox: ")
    assert done.stderr.endswith("raise its limit (ulimit -n)\n")
    assert done.stderr.count("\n") == 1
    assert list_kernels() == []


MANY = """
import kernelbox, sys
for number in range(20):
    try:
        assert kernelbox.execute(f"k{number}", "6 * 7").return_value == "42"
    except kernelbox.StartFailed as exc:
        print(number, exc)
        break
print(all(kernelbox.execute(f"k{other}", "6 * 7").return_value == "42" for other in range(number)))
kernelbox.destroy("k0")
print(kernelbox.execute("k99", "6 * 7").return_value)
"""


def test_a_template_that_can_keep_no_more_kernels_says_so_and_keeps_those_it_has(home: Path) -> None:
    command = f'ulimit -n 64; exec "{sys.executable}" -c "$0"'
    done = subprocess.run(
        ["sh", "-c", command, MANY], capture_output=True, text=True, timeout=DEADLINE * 2, check=False
    )
    refusal, *rest = done.stdout.splitlines()
    number, _, sentence = refusal.partition(" ")
    wrong = f"its template's limit of open files allows no more than {number} kernels"
    assert sentence == f"the kernel could not be started: {wrong}; raise its limit (ulimit -n)"
    assert rest == ["True", "42"]


WATCH = """
import os, resource
from kernelbox.host.process._lifeline import lifeline_to
from kernelbox.host.process._process import read_start_time
pid, started = os.getpid(), read_start_time(os.getpid())
for limit in (3, 4):  # too few for the descriptor; enough for it, and not for a look at its process
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        print(lifeline_to(pid, started))
    except OSError as exc:
        print(exc.strerror)
"""


def test_a_process_that_cannot_be_watched_for_want_of_files_is_not_taken_for_one_that_has_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCH], capture_output=True, text=True, timeout=DEADLINE, check=True, close_fds=True
    )
    assert done.stdout.splitlines() == ["Too many open files"] * 2


def test_a_cell_that_leaves_its_kernel_no_open_files_is_named_as_the_cause(kernel: KernelRecord) -> None:
    code = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    results = [execute(kernel, code, timeout=DEADLINE), execute(kernel, "1", timeout=DEADLINE)]
    assert results[-1].error is not None
    assert results[-1].error.ename == "KernelDied"
    assert "a cell lowered the number of open files (RLIMIT_NOFILE)" in results[-1].error.evalue
