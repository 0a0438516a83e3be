"""A Jupyter kernel that no client can reach, or whose start was cut short, ends, and so does what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cells import eventually, parent_of, run, wait_for_end
from tests.support.homes import destroy_all, new_home
from tests.support.store import remove_tree

from kernelbox import get_or_create, status

# Starts a process that leaves the kernel's session and ignores what it can ignore.
START_CHILD = (
    "import os, subprocess\n"
    "stay = 'trap : INT TERM HUP; while :; do sleep 100; done'\n"
    "child = subprocess.Popen(['sh', '-c', stay], start_new_session=True)\n"
    "print(os.getpid(), child.pid)"
)

DELETED: dict[str, Callable[[Path, Path], object]] = {
    "the home": lambda home, directory: remove_tree(home),
    "the runtime directory": lambda home, directory: remove_tree(home / "runtime"),
    "the kernel's directory": lambda home, directory: remove_tree(directory),
    "what clients read first": lambda home, directory: (directory / "link.json").unlink(),
    "the socket for output": lambda home, directory: (directory / "zmq-2").unlink(),
    "the socket for requests": lambda home, directory: (directory / "zmq-1").unlink(),
}


@pytest.fixture
def jupyter_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Points KERNELBOX_HOME at a directory that a test may delete."""
    with new_home() as home:
        monkeypatch.setenv("KERNELBOX_HOME", str(home))
        yield home
        destroy_all(home, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("delete", DELETED.values(), ids=list(DELETED))
def test_a_kernel_ends_with_its_children_soon_after_its_files_although_no_client_looks(
    delete: Callable[[Path, Path], object], jupyter_home: Path
) -> None:
    kernel = get_or_create("mine")
    pids = [int(word) for word in run(kernel, START_CHILD).output.split()]
    keeper = parent_of(pids[0])
    delete(jupyter_home, jupyter_home / "runtime" / kernel.kernel_id)
    for pid in (*pids, keeper):
        wait_for_end(pid)


def test_a_kernel_without_its_sockets_is_told_lost(jupyter_home: Path) -> None:
    kernel = get_or_create("mine", kernel_type="odd")
    os.kill(parent_of(kernel.pid or 0), signal.SIGSTOP)  # which would end it
    (jupyter_home / "runtime" / kernel.kernel_id / "zmq-1").unlink()
    assert (status("mine").status, status("mine").death) == ("dead", "its file 'zmq-1' was deleted")
    fresh = get_or_create("mine", kernel_type="odd")
    assert fresh.pid != kernel.pid
    wait_for_end(kernel.pid or 0)


def test_a_kernel_that_is_reached_over_tcp_has_no_sockets_to_lose() -> None:
    kernel = get_or_create("loopback", kernel_type="odd-tcp")
    assert status(kernel).alive


def test_a_kernel_whose_home_is_moved_goes_on(jupyter_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = get_or_create("mine", kernel_type="odd")
    moved = jupyter_home.with_name(jupyter_home.name + "-moved")
    jupyter_home.rename(moved)
    try:
        monkeypatch.setenv("KERNELBOX_HOME", str(moved))
        assert run("mine", "say here").output == "here\n"
        assert status("mine").pid == kernel.pid
    finally:
        moved.rename(jupyter_home)


def test_a_kernel_ends_with_its_children_when_its_keeper_is_killed(jupyter_home: Path) -> None:
    kernel = get_or_create("mine")
    pids = [int(word) for word in run(kernel, START_CHILD).output.split()]
    keeper = parent_of(pids[0])
    deputy = parent_of(keeper)
    os.kill(keeper, signal.SIGKILL)
    for pid in (*pids, keeper, deputy):
        wait_for_end(pid)
    assert not status(kernel).alive


def test_a_kernel_whose_opener_is_killed_before_it_answers_ends_with_its_children(
    jupyter_home: Path, tmp_path: Path
) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    code = "import kernelbox; kernelbox.get_or_create('mine', kernel_type='odd-mute')"
    opener = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "STARTED": str(fifo)})
    pids = [int(word) for word in fifo.read_text().split()]
    eventually(lambda: any("ZMQ" in comm.read_text() for comm in Path(f"/proc/{opener.pid}/task").glob("*/comm")))
    opener.kill()
    opener.wait()
    for pid in pids:
        wait_for_end(pid)
    assert status("mine").death == "its start was cut short"
