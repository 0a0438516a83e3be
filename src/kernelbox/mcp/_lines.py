"""Lines over the descriptors of a client, without a thread: one that waits in read(2) or write(2) cannot be stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import AsyncIterator, Callable
from typing import Any

# Bytes asked for at once.
_ROOM = 64 * 1024


async def read_lines(fd: int, longest: int) -> AsyncIterator[bytes | None]:
    """Yields lines without their ends until there are no more; None stands for one that is too long to be kept."""
    held, dropping = bytearray(), False
    while piece := await _read(fd):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            held += end
            yield None if dropping or len(held) > longest else bytes(held)
            held, dropping = bytearray(), False
        held += rest
        if len(held) > longest:
            held, dropping = bytearray(), True
    if held:
        yield bytes(held)


async def write_all(fd: int, data: bytes) -> None:
    """Writes data as the client takes it; raises OSError when it has closed its end."""
    loop, rest = asyncio.get_running_loop(), memoryview(data)
    while rest:
        await _until_ready(fd, loop.add_writer, loop.remove_writer)
        with contextlib.suppress(BlockingIOError):  # the client may have made it so
            rest = rest[os.write(fd, rest[: select.PIPE_BUF]) :]  # as much as a pipe that is ready takes (pipe(7))


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        await _until_ready(fd, loop.add_reader, loop.remove_reader)
        try:
            return os.read(fd, _ROOM)
        except BlockingIOError:
            continue
        except OSError:
            return b""  # a terminal that was closed, or a socket: there is no more


async def _until_ready(fd: int, watch: Callable[..., Any], unwatch: Callable[[int], Any]) -> None:
    ready = asyncio.Event()
    try:
        watch(fd, ready.set)
    except PermissionError:  # a regular file, which has no such state (epoll_ctl(2))
        await asyncio.sleep(0)
        return
    try:
        await ready.wait()
    finally:
        unwatch(fd)
