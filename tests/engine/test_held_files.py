"""What a keeper holds open for its kernels: watched in the original, closed in a fork."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kernelbox.guest._descriptors import Descriptors
from kernelbox.guest.birth._held_files import HeldFiles


@pytest.fixture
def pipe() -> Iterator[Descriptors]:
    with_ends = Descriptors()
    with_ends.open_pipe("read", "write")
    yield with_ends
    with_ends.close_all()


def _hold(files: HeldFiles, pid: int, **opened: int) -> Descriptors:
    return files.hold(pid, Descriptors({name: os.dup(number) for name, number in opened.items()}))


def test_what_becomes_readable_is_told_with_its_kernel_and_name(pipe: Descriptors) -> None:
    files = HeldFiles()
    first, second = _hold(files, 11, opening=pipe["read"]), _hold(files, 12, link=pipe["read"], stdout=pipe["read"])
    assert list(files.readable()) == []
    os.write(pipe["write"], b"x")
    assert sorted(files.readable()) == [(11, "opening", first["opening"]), (12, "link", second["link"])]
    first.close_all()
    second.close_all()


def test_what_is_closed_or_taken_is_watched_no_more(pipe: Descriptors) -> None:
    files = HeldFiles()
    held = _hold(files, 11, opening=pipe["read"], door=pipe["read"])
    os.write(pipe["write"], b"x")
    held.close("opening")
    door = held.take("door")
    assert list(files.readable()) == []
    heir = _hold(files, 12)
    heir.keep("door", door)
    assert list(files.readable()) == [(12, "door", door)]
    heir.close_all()


def test_a_fork_closes_all_of_them_and_nothing_else_and_the_original_goes_on(pipe: Descriptors) -> None:
    files = HeldFiles()
    held = [_hold(files, pid, opening=pipe["read"], stdout=pipe["read"]) for pid in range(5)]
    held[1].close_all()
    held[3].close("stdout")
    others = [os.dup(pipe["read"])]  # takes the place of one that was closed
    expected = {*others, *pipe.numbers}
    pid = os.fork()
    if pid == 0:
        files.close_in_fork()
        theirs = [number for each in held for number in each.numbers]
        os._exit(0 if all(map(_is_open, expected)) and not any(map(_is_open, [*theirs, *files.watched])) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    os.write(pipe["write"], b"x")
    assert sorted(pid for pid, _, _ in files.readable()) == [0, 2, 3, 4]
    for each in held:
        each.close_all()
    os.close(others[0])


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
