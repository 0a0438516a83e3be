"""Clients that are killed in the middle: the keeper finishes the step or undoes it, and nothing is lost or left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from tests.support.cells import DEADLINE, eventually, parent_of, run, value, wait_for_end
from tests.support.store import start_python

from kernelbox import (
    CheckpointNotFound,
    KernelRecord,
    branch,
    checkpoint,
    checkpoints,
    destroy,
    execute,
    get_or_create,
    list_kernels,
    promote,
    rollback,
    status,
)
from kernelbox.host.process._process import children_of, is_spare

# What a client does step by step: every call and every return in these files, of system calls too.
STEPS = ("/core/_time_travel.py", "/core/_copy_request.py", "/own/_keeper_request.py", "/store/_checkpoint_files.py")

# The steps from one at which a client is killed to the next. With 1 it is killed at every step, which takes minutes.
STRIDE = 27

# Seconds. Each test runs an operation dozens of times, on a machine that may have other work.
pytestmark = pytest.mark.timeout(400)


def survives(operation: Callable[[], object], step: int, function: str = "") -> bool:
    """Runs an operation in a fork that is killed at a step, or when it calls a function.

    Returns whether it had come to its end before.
    """
    pid = os.fork()
    if pid == 0:
        count = 0

        def look(frame: FrameType, event: str, _: object) -> None:
            nonlocal count
            count += frame.f_code.co_filename.endswith(STEPS)
            if count > step or (event == "call" and frame.f_code.co_name == function):
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(look)
        try:
            operation()
        except BaseException:  # noqa: BLE001  # the parent is told
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), f"the operation failed before step {step}"
    return status == 0


def steps_of(operation: Callable[[], object], begin: int) -> Iterator[int]:
    """Runs an operation again and again, killed a few steps later each time, until it comes to its end."""
    step = begin
    while not survives(operation, step):
        yield step
        step += STRIDE


@pytest.fixture
def pristine(own_home: Path) -> KernelRecord:
    kernel = get_or_create("a")
    run(kernel, "x = 1")
    return kernel


@pytest.fixture
def keeper(pristine: KernelRecord) -> int:
    assert pristine.pid is not None
    return parent_of(pristine.pid)


def kernels_of(keeper: int) -> list[int]:
    """Returns the kernels and checkpoints of a keeper; it may have a spare beside them."""
    return [pid for pid in children_of(keeper) if not is_spare(pid)]


def rubbish(home: Path) -> list[str]:
    return [str(path) for path in home.glob("runtime/*/*.unborn")]


def run_at_last(code: str) -> str | None:
    """Runs a cell, again if it is told of what the keeper has finished meanwhile; returns its value."""
    while not (told := execute("a", code, timeout=DEADLINE)).ok:
        assert told.ending == "rolled back" or "took its place" in told.text, told.text
    return told.return_value


@pytest.mark.parametrize("begin", range(3))
def test_a_rollback_that_is_cut_short_loses_neither_kernel_nor_checkpoint(
    pristine: KernelRecord, keeper: int, own_home: Path, begin: int
) -> None:
    checkpoint(pristine)
    run(pristine, "x = 2")
    for step in steps_of(lambda: rollback("a"), begin):
        assert run_at_last("x") in ("1", "2"), step
        assert len(checkpoints("a")) == 1, step
        eventually(lambda: len(kernels_of(keeper)) == 2)
        run_at_last("x = 2")
    assert run_at_last("x") == "1"
    assert rubbish(own_home) == []


def test_a_rollback_that_is_cut_short_keeps_the_reason_of_the_one_before(pristine: KernelRecord, keeper: int) -> None:
    checkpoint(pristine)
    checkpoint(pristine)
    code = "from kernelbox import execute; told = execute('a', 'import time; time.sleep(1000)'); "
    client = start_python(code + "print(told.state, told.ending, told.restored_from)")
    eventually(lambda: status("a").status == "running")
    client.send_signal(signal.SIGSTOP)
    rollback("a", 1)
    assert not survives(lambda: rollback("a", 2), sys.maxsize, "identify")
    eventually(lambda: len(kernels_of(keeper)) == 3)
    client.send_signal(signal.SIGCONT)
    said, _ = client.communicate(timeout=DEADLINE)
    assert said == "rolled back rolled back 1\n"


def test_a_process_that_outlives_a_rollback_cut_short_does_not_end_by_it(pristine: KernelRecord, keeper: int) -> None:
    checkpoint(pristine)
    assert not survives(lambda: rollback("a"), sys.maxsize, "identify")
    eventually(lambda: len(kernels_of(keeper)) == 2)
    told = execute("a", "import os; os.kill(os.getpid(), 9)", timeout=DEADLINE)
    assert "killed by SIGKILL" in told.text


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(3))
def test_a_checkpoint_that_is_cut_short_leaves_a_checkpoint_or_none(
    pristine: KernelRecord, keeper: int, begin: int
) -> None:
    for step in steps_of(lambda: checkpoint("a"), begin):
        assert value("a", "x") == "1", step
        eventually(lambda: len(kernels_of(keeper)) == 1 + len(checkpoints("a")))
        for made in checkpoints("a"):
            try:
                rollback("a", made)
            except CheckpointNotFound:  # the keeper has undone it since, because it was not finished
                assert made.number not in [kept.number for kept in checkpoints("a")]
            assert value("a", "x") == "1", step


@pytest.mark.parametrize("function", ["publish", "register", "settle"])
def test_a_branch_whose_client_is_killed_at_its_last_steps_is_a_kernel_or_none(
    pristine: KernelRecord, keeper: int, function: str
) -> None:
    assert not survives(lambda: branch("a", "b"), sys.maxsize, function)
    eventually(lambda: len(kernels_of(keeper)) == len([record for record in list_kernels() if record.alive]))
    assert value("a", "x") == "1"


@pytest.mark.parametrize("begin", range(3))
def test_a_branch_that_is_cut_short_is_a_kernel_or_none(pristine: KernelRecord, keeper: int, begin: int) -> None:
    for step in steps_of(lambda: branch("a", "b"), begin):
        assert value("a", "x") == "1", step
        eventually(lambda: len(kernels_of(keeper)) == len([record for record in list_kernels() if record.alive]))
        for record in list_kernels():
            assert not record.alive or value(record.name, "x") == "1", step
        destroy("b")


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(3))
def test_a_promotion_that_is_cut_short_loses_nothing(
    pristine: KernelRecord, keeper: int, own_home: Path, begin: int
) -> None:
    run(branch("a", "b"), "x = 2")
    for step in steps_of(lambda: promote("b"), begin):
        eventually(lambda: len(kernels_of(keeper)) == len([record for record in list_kernels() if record.alive]))
        found = run_at_last("x")
        assert found == "2" or (found == "1" and value("b", "x") == "2"), step
        run_at_last("x = 1")
        destroy("b")
        run(branch("a", "b"), "x = 2")
    assert run_at_last("x") == "2"
    assert rubbish(own_home) == []


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(3))
def test_a_restore_that_is_cut_short_is_done_by_the_next_client(
    pristine: KernelRecord, keeper: int, own_home: Path, begin: int
) -> None:
    checkpoint(pristine)

    def die_and_come_back() -> None:
        record = get_or_create("a")
        assert record.pid is not None
        if record.restored_from is None or run("a", "x").ok:
            os.kill(record.pid, signal.SIGKILL)
            wait_for_end(record.pid)
        execute("a", "x")

    for step in steps_of(die_and_come_back, begin):
        execute("a", "1")  # it may have to tell of the death
        assert value("a", "x") == "1", step
        assert len(checkpoints("a")) == 1, step
        eventually(lambda: len(kernels_of(keeper)) == 2)
