"""Keepers that can open no more files: a request is refused, and the keeper goes on for all of its kernels."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cells import eventually, parent_of, run, value

from kernelbox import CannotCopy, KernelRecord, checkpoint, checkpoints, get_or_create, rollback
from kernelbox.host.process._process import Process, read_start_time

# A request takes two descriptors to arrive, and a rollback in a sandbox about twenty.
FEWEST, ENOUGH = 2, 30


@pytest.fixture
def box(own_home: Path, tmp_path: Path) -> KernelRecord:
    """Opens a kernel whose keeper makes no spares: they would take descriptors at any time."""
    kernel = get_or_create("box", cwd=tmp_path, sandbox=True)
    run(kernel, "x = 1")
    checkpoint(kernel)
    assert measured(kernel)
    return kernel


def test_checkpoints_are_listed_when_their_keeper_cannot_measure_them(box: KernelRecord) -> None:
    found = []
    for files in range(FEWEST, ENOUGH):
        with room_for(box, files):
            found.append(measured(box))
    assert not found[0]
    assert found[-1]


def test_a_rollback_whose_keeper_can_open_no_more_files_is_refused(box: KernelRecord) -> None:
    run(box, "x = 2")
    repeat_with_more_room(box, rollback)
    assert value(box, "x") == "1"


def test_a_checkpoint_whose_keeper_can_open_no_more_files_is_refused(box: KernelRecord) -> None:
    repeat_with_more_room(box, checkpoint)
    assert len(checkpoints(box)) == 2


def repeat_with_more_room(kernel: KernelRecord, copy: Callable[[KernelRecord], object]) -> None:
    """Asks for a copy until the keeper can open enough files; a refused one changes nothing, and leaves nothing."""
    keeper, refusals, x = keeper_of(kernel), list[str](), value(kernel, "x")
    before = len(open_files(keeper))
    for files in range(FEWEST, ENOUGH):
        with room_for(kernel, files):
            refusal = find_refusal(copy, kernel)
        if not refusal:
            break
        refusals.append(refusal)
        assert value(kernel, "x") == x
        eventually(lambda: len(open_files(keeper)) <= before)
    assert refusals
    assert not [refusal for refusal in refusals if "does not answer" in refusal]


def find_refusal(copy: Callable[[KernelRecord], object], kernel: KernelRecord) -> str:
    """Makes a copy; returns why that is refused, "" if it is not."""
    try:
        copy(kernel)
    except CannotCopy as exc:
        return str(exc)
    return ""


def measured(kernel: KernelRecord) -> bool:
    """Lists the one checkpoint; returns whether its memory is known."""
    (found,) = checkpoints(kernel)
    return found.private_bytes > 0


@contextlib.contextmanager
def room_for(kernel: KernelRecord, files: int) -> Iterator[None]:
    """Lets the keeper of a kernel open only so many more files."""
    keeper = keeper_of(kernel)
    taken = open_files(keeper)
    free = [number for number in range(len(taken) + files + 1) if number not in taken]
    limit = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
    resource.prlimit(keeper, resource.RLIMIT_NOFILE, (free[files], limit[1]))
    try:
        yield
    finally:
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, limit)


def open_files(pid: int) -> set[int]:
    return set(map(int, os.listdir(f"/proc/{pid}/fd")))


def keeper_of(kernel: KernelRecord) -> int:
    """Returns the keeper of a sandboxed kernel: the parent of the maker, which is the parent of the first process."""
    assert kernel.pid is not None
    first = Process(kernel.pid, read_start_time(kernel.pid) or 0).first_of_namespace()
    assert first is not None
    return parent_of(parent_of(first.pid))
