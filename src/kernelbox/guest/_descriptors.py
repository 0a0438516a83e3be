"""The descriptors of a template: taken with its socket and with requests, closed in its forks."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable

from kernelbox.wire._framing import Decoder
from kernelbox.wire._messages import Message

# What can come with a request: what each has, a lifeline, and one for each hierarchy of control groups.
_MOST_DESCRIPTORS = 32


def take_socket(fd: int) -> socket.socket:
    """Returns the socket that came with us, which no kernel inherits; in the place of our standard input is nothing.

    srt passes on what it has open beyond a gap in the numbers: we keep nothing of that.
    """
    if fd == 0:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        fd = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
    os.set_inheritable(fd, False)
    return socket.socket(fileno=fd)


def receive(client: socket.socket) -> tuple[Message, list[int]]:
    """Takes a request, and the descriptors that come with it."""
    decoder, fds = Decoder(), list[int]()
    try:
        while True:
            data, received, _, _ = socket.recv_fds(client, 65536, _MOST_DESCRIPTORS)
            fds += received
            for fd in received:
                os.set_inheritable(fd, False)  # a program that a cell starts must not hold the kernel's socket open
            if not data:
                raise ConnectionResetError("the opener went away")
            if messages := decoder.feed(data):
                return messages[0], fds
    except BaseException:
        for fd in fds:
            close(fd)
        raise


def read_all(fd: int) -> bytes:
    """Reads a descriptor to its end, and closes it."""
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    os.close(fd)
    return b"".join(parts)


def read_file(fd: int) -> bytes:
    """Reads a file from its beginning, and closes it: another keeper, which has ended, may have read it before."""
    parts, size = [], 0
    while part := os.pread(fd, 1 << 20, size):
        parts.append(part)
        size += len(part)
    os.close(fd)
    return b"".join(parts)


def close_each(*others: socket.socket | int | None) -> None:
    """Closes what there is of these; -1 and None are nothing."""
    for other in others:
        if isinstance(other, int):
            close(other)
        elif other is not None:
            other.close()


def close(fd: int) -> None:
    """Closes a descriptor, if it is one."""
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.close(fd)


def close_many(fds: Iterable[int]) -> None:
    """Closes descriptors, those of thousands of kernels in a few calls: their numbers follow upon one another."""
    numbers = sorted(fd for fd in fds if fd >= 0)
    first = 0
    for after in range(1, len(numbers) + 1):
        if after == len(numbers) or numbers[after] > numbers[after - 1] + 1:
            os.closerange(numbers[first], numbers[after - 1] + 1)
            first = after
