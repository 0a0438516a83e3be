"""Receives the publications of a Jupyter kernel in a thread, and keeps a limited number of bytes for the reader.

A kernel does not wait for its readers, and ZeroMQ limits messages, not bytes. So a thread takes messages at once, keeps
a limited number of bytes, and marks where it dropped messages.

When the interpreter ends (`sys.is_finalizing`), other threads no longer run, and one of them may hold the mutex. So
nothing is read then.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from dataclasses import dataclass

from kernelbox.base._unique_objects import Owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import zmq

# The most bytes to keep; the same as for a cell that nobody waits for.
_ROOM = 64 * 1024 * 1024

# Small messages get more room, because those about the kernel's status are small.
_SMALL = 4 * 1024
_MORE_ROOM = 16 * 1024 * 1024

# The overhead of a message: a list, and an object for each of its seven frames.
_EACH = 500

# How long to wait for the thread, which only has to wake up.
_STOP_PATIENCE = 1.0


@dataclass(slots=True)
class LeftOut:
    """Marks where messages were dropped, because too many were unread."""

    messages: int = 0
    size: int = 0


class Subscription(Owner):
    """Reads a socket in its own thread, which owns the socket from then on."""

    def __init__(self, sock: zmq.Socket[bytes]) -> None:
        self._kept: deque[list[bytes] | LeftOut] = deque()
        self._size = 0
        self._forgotten = False
        self._mutex = threading.Lock()
        self._read_end, self._write_end = os.pipe()
        self._stop_read, self._stop_write = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._thread = threading.Thread(target=self._run, args=[sock], name="kernelbox-iopub", daemon=True)
        try:
            if sys.is_finalizing():
                raise RuntimeError("the interpreter is ending")
            self._thread.start()
        except RuntimeError as exc:  # or there are too many threads
            self.forget()
            sock.close()
            raise ConnectionAbortedError(f"the kernel's messages cannot be read: {exc}") from exc

    def __repr__(self) -> str:
        with self._mutex:
            left_out = sum(item.messages for item in self._kept if isinstance(item, LeftOut))
            return f"<Subscription with {self._size} bytes, {left_out} messages left out>"

    def fileno(self) -> int:
        """Returns a descriptor that is readable while there are messages."""
        return self._read_end

    def take(self) -> Iterator[list[bytes] | LeftOut]:
        """Returns the frames of each message that has arrived, in order."""
        if sys.is_finalizing():
            return iter(())
        with self._mutex:
            kept, self._kept, self._size = self._kept, deque(), 0
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_end, 4096)
        return iter(kept)

    def close(self) -> None:
        """Ends the thread, which closes the socket."""
        if self._forgotten or sys.is_finalizing():
            return
        os.close(self._stop_write)
        self._thread.join(_STOP_PATIENCE)
        with self._mutex:
            os.close(self._read_end)
            os.close(self._write_end)
            self._write_end = -1

    def forget(self) -> None:
        """Closes the copies of a fork. The thread belongs to the parent, so the mutex may be locked forever here."""
        self._forgotten = True
        for fd in (self._stop_write, self._stop_read, self._read_end, self._write_end):
            os.close(fd)

    def _run(self, sock: zmq.Socket[bytes]) -> None:
        import zmq

        poller = zmq.Poller()
        poller.register(sock, zmq.POLLIN)
        poller.register(self._stop_read, zmq.POLLIN)
        try:
            while self._stop_read not in dict(poller.poll()):
                with contextlib.suppress(zmq.Again):
                    while True:
                        self._keep(sock.recv_multipart(zmq.DONTWAIT))
        finally:
            sock.close()
            os.close(self._stop_read)

    def _keep(self, frames: list[bytes]) -> None:
        size = sum(map(len, frames)) + _EACH
        with self._mutex:
            if self._size + size <= (_ROOM + _MORE_ROOM if size <= _SMALL else _ROOM):
                self._kept.append(frames)
                self._size += size
            else:
                if not self._kept or not isinstance(self._kept[-1], LeftOut):
                    self._kept.append(LeftOut())
                    self._size += _EACH
                left_out = self._kept[-1]
                assert isinstance(left_out, LeftOut)
                left_out.messages += 1
                left_out.size += size
            if len(self._kept) == 1 and self._write_end >= 0:
                os.write(self._write_end, b"\0")
