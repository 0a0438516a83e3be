"""A connection to a kernel: its socket, and its process watched in the same wait."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time

from kernelbox.host._process import Process
from kernelbox.wire._framing import Decoder, ProtocolError, encode
from kernelbox.wire._messages import Ask, Farewell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelbox.wire._messages import Message

SOCKET = "socket"

# sun_path holds 108 bytes on Linux and 104 on macOS.
_LONGEST_PATH = 100


class Connection:
    """Sends and receives messages; ends when the kernel closes it or dies."""

    def __init__(self, directory: str, process: Process) -> None:
        self.directory = directory
        self.process = process
        self.ended = False
        self.pid = os.getpid()
        self._decoder = Decoder()
        self._last_ask = 0
        self._unsent = b""
        self._sock = dial(os.path.join(directory, SOCKET))
        self._sock.setblocking(False)
        self._poller = select.poll()
        self._poller.register(self._sock, select.POLLIN)
        if process.fileno() >= 0:
            self._poller.register(process.fileno(), select.POLLIN)

    def __repr__(self) -> str:
        return f"<Connection to {self.process!r}{' ended' if self.ended else ''}>"

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def idle(self) -> bool:
        """Whether the connection can carry another execution: open, with nothing to read and nothing left to send."""
        if self.ended or self._unsent or self.pid != os.getpid():
            return False
        poller = select.poll()  # not ours: another thread may be waiting at it, which a poller refuses
        try:
            poller.register(self._sock, select.POLLIN)
            if self.process.fileno() >= 0:
                poller.register(self.process.fileno(), select.POLLIN)
            return not poller.poll(0)
        except ValueError:
            return False  # another thread has closed it this moment

    def send(self, message: Message) -> None:
        """Sends a message, without waiting: what a busy kernel does not take now, `receive` sends while it waits."""
        self._unsent = bytes(self.send_some(memoryview(self._unsent + encode(message))))

    def send_some(self, data: memoryview) -> memoryview:
        """Sends as much as the kernel takes at once, and returns the rest; nothing is left of what nobody can get."""
        while data and not self.ended:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                return data
            except OSError:
                break
        return data[:0]

    def receive(self, timeout: float | None) -> list[Message]:
        """Waits for messages. None have come if the time is up or, with `ended` set, if the kernel is gone."""
        if self._unsent:
            timeout = self._send_rest(timeout)
        for fd, _ in self._poller.poll(None if timeout is None else max(0.0, timeout) * 1000):
            if fd == self._sock.fileno():
                return self.read()
        if self.process.fileno() >= 0 and self.process.wait(0.0):
            return self.read() or self._end()  # its last messages are still in the socket
        if self.process.fileno() < 0 and not self.process.alive:
            return self.read() or self._end()
        return []

    def _send_rest(self, timeout: float | None) -> float | None:
        """Sends what is left until something arrives or the time is up; returns how much of it remains."""
        deadline = None if timeout is None else time.monotonic() + timeout
        poller = select.poll()
        poller.register(self._sock, select.POLLIN | select.POLLOUT)
        if self.process.fileno() >= 0:
            poller.register(self.process.fileno(), select.POLLIN)
        left = timeout
        while self._unsent and not self.ended and (left is None or left > 0):
            events = poller.poll(None if left is None else left * 1000)
            if any(event & ~select.POLLOUT for _, event in events):
                break
            self._unsent = bytes(self.send_some(memoryview(self._unsent)))
            left = None if deadline is None else deadline - time.monotonic()
        return left

    def read(self) -> list[Message]:
        """Takes what has arrived."""
        try:
            data = self._sock.recv(256 * 1024)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        try:
            messages = self._decoder.feed(data) if data else self._end()
        except ProtocolError as exc:  # a cell found our socket and wrote to it
            return self._kill(f"it sent what is no message ({exc})")
        for message in messages:
            if isinstance(message, Ask):
                if message.ask <= self._last_ask:  # the guest's numbers only rise
                    return self._kill(f"it forged a question: number {message.ask} is not above {self._last_ask}")
                self._last_ask = message.ask
        return messages

    def _kill(self, reason: str) -> list[Message]:
        """Ends a kernel whose words cannot be trusted any more, those that came with the false ones included."""
        self.process.signal(signal.SIGKILL)
        self.process.wait(1.0)
        self._end()
        return [Farewell(f"killed, because {reason}")]

    def close(self) -> None:
        self.ended = True
        self._sock.close()
        self.process.close()

    def __del__(self) -> None:
        if hasattr(self, "_sock"):
            self._sock.close()  # one that waited in the pool until the interpreter ended

    def _end(self) -> list[Message]:
        self.ended = True
        return []


def dial(path: str) -> socket.socket:
    """Returns a socket that is connected to the one at `path`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(path) as short:
            sock.connect(short)
    except OSError:
        sock.close()
        raise
    return sock


def listen(path: str, *, tell_senders: bool = False) -> socket.socket:
    """Returns a socket that listens at `path`, in place of one that may be left there.

    With `tell_senders` the system says of all that arrives who wrote it (SO_PASSCRED, unix(7)).
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(path) as short:
            sock.bind(short)
        if tell_senders and hasattr(socket, "SO_PASSCRED"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def reachable(path: str) -> Iterator[str]:
    """Gives a path short enough for a socket address: through the directory's descriptor, where it is too long."""
    if len(os.fsencode(path)) <= _LONGEST_PATH or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{os.path.basename(path)}"
    finally:
        os.close(fd)
