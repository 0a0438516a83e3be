"""Limits of sandboxed kernels: kept as those of others, in both ways."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest
from tests.support.cells import eventually, parent_of, wait_for_end
from tests.support.limits import WAYS, death, run
from tests.support.sandbox import LEVEL, namespace, needs_linux, processes_in_namespace

from kernelbox import KernelRecord, get_or_create

pytestmark = needs_linux

both_ways = pytest.mark.parametrize("groups", WAYS)


@pytest.fixture(autouse=True)
def way(groups: str, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBOX_CGROUPS", groups)


def limited(**limits: int | str) -> KernelRecord:
    return get_or_create("limited-box", sandbox=True, sandbox_level=LEVEL, limits=limits)


@both_ways
def test_a_sandboxed_kernel_that_takes_too_much_memory_dies_of_it() -> None:
    kernel = limited(memory="200MB")
    inside = namespace(kernel.pid)
    told = death(kernel, "x = b'x' * 400_000_000")
    assert "out of memory (limit 200 MB" in told
    eventually(lambda: not processes_in_namespace(inside) and not any(map(os.path.exists, kernel.groups)))


@both_ways
def test_memory_in_private_directories_counts() -> None:
    told = death(limited(memory="200MB"), "open('/tmp/big', 'wb').write(b'x' * 400_000_000)")
    assert "out of memory (limit 200 MB" in told


@both_ways
def test_files_in_private_directories_count_as_memory_also_when_they_are_closed() -> None:
    fill = "for i in range(60):\n    with open(f'/dev/shm/{i}', 'wb') as file: file.write(bytes(8_000_000))"
    assert "out of memory (limit 200 MB" in death(limited(memory="200MB"), fill)


@pytest.mark.parametrize("groups", ["0"])
def test_files_of_memory_count_also_when_others_have_given_as_much_back() -> None:
    with tempfile.TemporaryFile(dir="/dev/shm") as others:
        others.write(bytes(300_000_000))
        others.flush()
        kernel = limited(memory="200MB")
    fill = "for i in range(30):\n    with open(f'/dev/shm/{i}', 'wb') as file: file.write(bytes(8_000_000))"
    assert "out of memory (limit 200 MB" in death(kernel, fill)


@both_ways
def test_memory_of_orphans_counts_that_their_kernel_does_not_take_in() -> None:
    orphan = (
        "import ctypes, os\nctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER\n"
        "if os.fork() == 0:\n    if os.fork() > 0: os._exit(0)\n    os.setsid()\n"
    )
    kernel = limited(memory="200MB")
    inside = namespace(kernel.pid)
    run(kernel, f"{orphan}    x = b'x' * 400_000_000\n    import signal; signal.pause()")
    eventually(lambda: len(processes_in_namespace(inside)) in (0, 2))  # in a group only the orphan is killed


@both_ways
def test_a_sandboxed_kernel_keeps_to_its_number_of_processes() -> None:
    kernel = limited(processes=30)
    start = "import subprocess, time\nps = [subprocess.Popen(['sleep', '1000']) for _ in range(60)]"
    result = run(kernel, f"{start}\ntime.sleep(1000)")
    assert result.error is not None
    assert result.status == "error", "it is stopped, and not by its timeout"
    inside = namespace(kernel.pid) if result.state == "kept" else ""
    assert len(processes_in_namespace(inside)) <= 31


@both_ways
def test_a_sandboxed_kernel_cannot_open_more_files_than_its_limit() -> None:
    kernel = limited(files=100)
    assert "Too many open files" in run(kernel, "fs = [open('/dev/null') for _ in range(200)]").text


@pytest.mark.parametrize("groups", ["0"])
def test_a_sandboxed_kernel_whose_limits_are_looked_after_ends_with_its_keeper(own_home: Path) -> None:
    kernel = limited(memory="1GB")
    template, inside = parent_of(kernel.pid or 0), namespace(kernel.pid)
    os.kill(template, signal.SIGKILL)
    wait_for_end(kernel.pid or 0)
    eventually(lambda: not processes_in_namespace(inside))
