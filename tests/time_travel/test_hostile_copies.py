"""Copies that cells have made hostile: one fails by itself, and the keeper goes on for all other kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.cells import eventually, run, value

from kernelbox import (
    CannotCopy,
    CheckpointNotFound,
    KernelRecord,
    branch,
    checkpoint,
    checkpoints,
    get_or_create,
    rollback,
)

# Takes the place of what a copy does after the fork. It never ends by itself, and answers nothing.
HOSTILE = """
import os, signal, socket
from kernelbox.guest._keeper_link import make_link, receive_packet, send_packet
from kernelbox.guest.serve._copying import Copies
from kernelbox.wire._messages import Adopt

def fill(number):
    with socket.socket(fileno=os.dup(number)) as sock:
        try:
            while True:
                sock.send(b"x" * 1000, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass

def become(self, token, request, survey, apart):
    ours, theirs = make_link()
    {before}
    send_packet(self._parts.identity.link, Adopt(token), [ours])
    {after}
    os.close(self._parts.identity.link)
    os.write(apart, b"apart")
    os.close(apart)
    {last}
    signal.pause()

Copies._become = become
"""


@pytest.fixture
def other(own_home: Path) -> KernelRecord:
    """Opens another kernel of the same keeper."""
    kernel = get_or_create("other")
    run(kernel, "x = 1")
    return kernel


def make_hostile(before: str = "pass", after: str = "pass", last: str = "pass") -> KernelRecord:
    kernel = get_or_create("hostile")
    run(kernel, HOSTILE.format(before=before, after=after, last=last))
    return kernel


@pytest.mark.parametrize("copy", [checkpoint, lambda kernel: branch(kernel, "copy")], ids=["checkpoint", "branch"])
def test_a_copy_whose_link_is_full_is_refused(other: KernelRecord, copy: Callable[[KernelRecord], object]) -> None:
    kernel = make_hostile(before="fill(ours)")
    with pytest.raises(CannotCopy, match="could not be taken in"):
        copy(kernel)
    assert value(other, "x") == "1"
    assert value(branch(other, "fine"), "x") == "1"


def test_a_rollback_to_a_checkpoint_that_has_filled_its_link_is_refused(other: KernelRecord) -> None:
    kernel = make_hostile(after="receive_packet(theirs); fill(ours)")
    checkpoint(kernel)
    with pytest.raises(CannotCopy, match="cannot be reached"):
        rollback(kernel)
    assert value(kernel, "1") == "1"
    assert [each.number for each in checkpoints(kernel)] == [1]  # which asks it to let itself be measured
    assert value(branch(other, "fine"), "x") == "1"


def test_a_checkpoint_that_closes_its_link_is_gone(other: KernelRecord) -> None:
    kernel = make_hostile(after="receive_packet(theirs)", last="os.close(ours); os.close(theirs)")
    checkpoint(kernel)
    with pytest.raises(
        (CheckpointNotFound, CannotCopy), match=r"no checkpoint|cannot be reached"
    ):  # as it is just ending
        rollback(kernel)
    eventually(lambda: checkpoints(kernel) == [])
    assert value(kernel, "1") == "1"
    assert value(branch(other, "fine"), "x") == "1"
