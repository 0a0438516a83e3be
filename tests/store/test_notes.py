"""Notes that a cell plants in its kernel's directory are not taken for those of a host."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.cells import eventually, run, wait_for_end
from tests.support.store import DEADLINE, run_python, start_python

from kernelbox import KernelRecord, execute, get_or_create, list_kernels, restart, status


def kill(kernel: KernelRecord) -> None:
    assert kernel.pid is not None
    os.kill(kernel.pid, signal.SIGKILL)
    wait_for_end(kernel.pid)


def report_about(kernel: KernelRecord) -> Path:
    return Path(kernel.connection_file).parent / f"reported-{kernel.pid}-{kernel.start_time}"


@pytest.mark.parametrize("plant", [Path.touch, Path.mkdir, lambda path: path.symlink_to("log"), os.mkfifo])
def test_a_death_is_told_although_a_cell_has_noted_that_it_was(
    plant: Callable[[Path], object], kernel: KernelRecord
) -> None:
    plant(report_about(kernel))
    kill(kernel)
    told = execute(kernel.name, "1", timeout=DEADLINE)
    assert told.error is not None
    assert "killed by SIGKILL" in told.error.evalue
    assert execute(kernel.name, "1", timeout=DEADLINE).return_value == "1", "it is told once"


def test_the_note_about_the_death_of_one_process_is_not_that_of_another(kernel: KernelRecord) -> None:
    kill(kernel)
    assert execute(kernel.name, "1", timeout=DEADLINE).error is not None
    note = report_about(kernel).read_bytes()
    again = restart(kernel)
    report_about(again).write_bytes(note)
    kill(again)
    assert execute(kernel.name, "1", timeout=DEADLINE).error is not None


def test_who_takes_the_name_of_a_dead_kernel_is_told_although_a_cell_has_noted_that_it_was(
    kernel: KernelRecord,
) -> None:
    report_about(kernel).touch()
    kill(kernel)
    assert "killed by SIGKILL" in (get_or_create(kernel.name).lost or "")


def test_a_cell_cannot_say_why_a_host_has_ended_its_kernel(kernel: KernelRecord) -> None:
    note = {"pid": kernel.pid, "start_time": kernel.start_time, "reason": "restarted: all is well"}
    path = Path(kernel.connection_file).parent / "ending.json"
    forged = json.dumps({"reasons": [note, {**note, "signature": "0" * 64}, 5]})
    run(kernel, f"open({str(path)!r}, 'w').write({forged!r})")
    kill(kernel)
    told = execute(kernel.name, "1", timeout=DEADLINE)
    assert told.error is not None
    assert "killed by SIGKILL" in told.error.evalue


@pytest.mark.parametrize("planted", [False, True])
def test_a_host_says_why_it_ends_a_kernel_to_another(kernel: KernelRecord, planted: bool) -> None:
    if planted:  # as long as a note may be: with that of the host it must not become longer
        longest = json.dumps({"reasons": ["x" * (16 * 1024 * 1024 - 20)]})
        (Path(kernel.connection_file).parent / "ending.json").write_text(longest)
    code = f"import kernelbox; print(kernelbox.execute({kernel.name!r}, 'import time; time.sleep(1000)').error.evalue)"
    waiting = start_python(code)
    eventually(lambda: status(kernel).status == "running")
    restart(kernel)
    said, _ = waiting.communicate(timeout=DEADLINE)
    assert said.startswith("restarted")


@pytest.mark.parametrize("text", ['{"version":1,"kernels":[' + "[]," * 5_000_000 + "0]}", "[" * 10_000_000])
def test_a_planted_registry_costs_little_memory_to_list(home: Path, text: str) -> None:
    get_or_create("first")
    (home / "registry.json").write_text(text)
    code = """
import re, warnings
import kernelbox
warnings.simplefilter("ignore")
kernelbox.list_kernels()
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])  # ru_maxrss counts the parent's memory too
"""
    assert int(run_python(code).stdout) < 150 * 1024, "kilobytes"
    assert [record.name for record in list_kernels()] == ["first"]
