"""The queue of clients in front of a kernel: one is first, the next follows, and leaving costs nothing."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.support.cells import DEADLINE

from kernelbox.host.engines.jupyter._client_queue import QueueLock, end_queue
from kernelbox.host.files._place import Place
from kernelbox.host.store._kernel_directory import KernelDirectory


class Anywhere:
    """Leads to a directory that needs no seal."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def secret(self) -> bytes:
        return b"secret"

    def open(self) -> Place:
        return Place.open_any(str(self._path))

    make = open


def directory_at(path: Path) -> KernelDirectory:
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.chmod(0o700)
    return KernelDirectory(Anywhere(path.parent), str(path.parent), path.name)


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[list[QueueLock]]:
    """Makes three places in the queue of one kernel."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(QueueLock(directory_at(tmp_path)))) for _ in range(3)]


def test_the_first_client_is_first_at_once_and_the_next_is_not(clients: list[QueueLock]) -> None:
    for client in clients:
        client.join()
    assert [client.first for client in clients] == [True, False, False]


def test_a_descriptor_becomes_readable_when_its_client_is_first(clients: list[QueueLock]) -> None:
    first, second, _ = clients
    first.join()
    second.join()
    assert not is_readable(second, 0.0)
    first.leave()
    assert is_readable(second, DEADLINE)
    assert (first.first, second.first) == (False, True)


@pytest.mark.parametrize("way", ["leave", "close"])
def test_a_client_that_goes_while_it_waits_does_not_hold_up_the_others(clients: list[QueueLock], way: str) -> None:
    first, second, third = clients
    for client in clients:
        client.join()
    getattr(second, way)()
    first.leave()
    assert is_readable(third, DEADLINE)
    assert (second.first, third.first) == (False, True)


def test_a_client_that_leaves_and_joins_again_waits_in_one_thread(clients: list[QueueLock]) -> None:
    first, second, _ = clients
    first.join()
    before = set(threading.enumerate())
    for _ in range(20):
        second.join()
        second.leave()
    second.join()
    assert len(set(threading.enumerate()) - before) == 1
    first.leave()
    assert is_readable(second, DEADLINE)
    assert second.first


def test_a_client_can_be_first_again_and_again(clients: list[QueueLock]) -> None:
    first, second, _ = clients
    for _ in range(20):
        first.join()
        assert (first.first, second.first) == (True, False)
        first.leave()
        second.join()
        assert (first.first, second.first) == (False, True)
        second.leave()


def test_joining_twice_is_a_mistake_of_the_caller(clients: list[QueueLock]) -> None:
    clients[0].join()
    with pytest.raises(AssertionError, match="only once"):
        clients[0].join()


def test_leaving_a_queue_that_was_not_joined_does_nothing(clients: list[QueueLock]) -> None:
    clients[0].leave()
    clients[0].join()
    assert clients[0].first


def test_a_new_queue_does_not_wait_for_the_old_one(clients: list[QueueLock], tmp_path: Path) -> None:
    first, second, _ = clients
    first.join()
    end_queue(directory_at(tmp_path))
    second.join()
    assert (first.first, second.first) == (True, True)


def test_a_directory_that_is_gone_has_no_queue(tmp_path: Path) -> None:
    with closing(QueueLock(directory_at(tmp_path / "gone"))) as client, pytest.raises(FileNotFoundError):
        client.join()


def test_waking_makes_the_descriptor_readable_until_it_is_cleared(clients: list[QueueLock]) -> None:
    client, *_ = clients
    client.wake()
    client.wake()
    assert is_readable(client, 0.0)
    client.clear()
    assert not is_readable(client, 0.0)


def test_waking_a_closed_client_does_nothing(clients: list[QueueLock]) -> None:
    clients[0].close()
    pipes = [os.pipe() for _ in range(4)]  # which get the numbers of the descriptors that were closed
    try:
        clients[0].wake()
        assert select.select([reader for reader, _ in pipes], [], [], 0.0)[0] == []
    finally:
        for fd in (fd for pipe in pipes for fd in pipe):
            os.close(fd)


def is_readable(client: QueueLock, patience: float) -> bool:
    return bool(select.select([client], [], [], patience)[0])
