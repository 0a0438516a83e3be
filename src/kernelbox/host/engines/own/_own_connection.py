"""A connection to one of kernelbox's own kernels. It waits for the socket and the process at the same time."""

from __future__ import annotations

import os
import select
import time

from kernelbox.base._light_stdlib import Lock, signal
from kernelbox.host.engines._local import END_PATIENCE, KILL_PATIENCE, LocalConnection, end_closed
from kernelbox.host.files._sockets import dial, peer_of
from kernelbox.host.process._forks import forget_in_forks
from kernelbox.host.process._process import DIRECT_INTERRUPT, Process
from kernelbox.host.store._state_file import aim, read_state
from kernelbox.wire._framing import Decoder, ProtocolError, encode
from kernelbox.wire._layout import SOCKET
from kernelbox.wire._messages import Answer, Ask, Execute, Farewell, Interrupt, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket as Socket

    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.wire._messages import Message
    from kernelbox.wire._questions import Questions

# A guest sends a message in one go. If the rest is missing for this long, the host checks whether the cell still runs.
_REST_PATIENCE = 1.0

# A kernel takes an interrupt within milliseconds, even during a cell. If it does not, the interpreter is blocked.
_INTERRUPT_PATIENCE = 2.0

# Bytes to receive at once: few enough for a quick allocation, and more while more arrives.
_ROOM = 64 * 1024
_LARGE_ROOM = 256 * 1024

# Bytes passed to one send(2); a socket's buffer takes fewer.
_PIECE = 1024 * 1024


class OwnConnection(LocalConnection):
    """Sends and receives messages; ends when the kernel closes it or dies."""

    def __init__(
        self, directory: KernelDirectory, process: Process, *, guarded: bool = False, copied: bool = False
    ) -> None:
        super().__init__(directory, process)
        self.ended = False
        self.inherited = False
        self._decoder = Decoder()
        self._room = _ROOM
        self._key = os.urandom(16).hex()
        self._execution_id = ""
        self._questions: Questions | None = None
        self._unsent = bytearray()
        self._sending = Lock()
        self._killed = False
        self._heard_at = 0.0
        self._runner_key = b""
        if guarded:
            from kernelbox.host.engines.own._guarded import fetch_key  # few kernels are guarded

            self._runner_key = fetch_key(directory)
        self._sock = _dial_copy(directory, process) if copied else _dial(directory)
        self._sock.setblocking(False)
        self._poller = self._make_poller()
        self._looker = self._make_poller()  # a poller refuses a second thread while one waits
        forget_in_forks(self)

    def _make_poller(self, events: int = select.POLLIN) -> select.poll:
        poller = select.poll()
        poller.register(self._sock, events)
        if self.process.fileno() >= 0:
            poller.register(self.process.fileno(), select.POLLIN)
        return poller

    def __repr__(self) -> str:
        return f"<OwnConnection to {self.process!r}{' ended' if self.ended else ''}>"

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def idle(self) -> bool:
        """Whether the connection is open, with nothing to read and nothing left to send."""
        if self.ended or self._unsent:
            return False
        try:
            return not self._looker.poll(0)
        except (ValueError, RuntimeError):
            return False  # another thread has just closed it, or asks too

    def send(self, message: Message) -> None:
        """Sends a message without waiting. What a busy kernel does not take now, `receive` sends while it waits."""
        if isinstance(message, Execute):
            message.key, self._execution_id, self._questions = self._key, message.id, None
        elif isinstance(message, Answer) and self._questions is not None:
            self._questions.sign(message)
        frame = encode(message)
        with self._sending:
            self._unsent += frame
        self.flush()

    @property
    def unsent(self) -> bool:
        return bool(self._unsent)

    def flush(self) -> None:
        """Sends as much as the kernel takes at once; drops the rest if the kernel is gone."""
        with self._sending:
            while self._unsent and not self.ended:
                try:
                    with memoryview(self._unsent) as view:
                        sent = self._sock.send(view[:_PIECE])
                    del self._unsent[:sent]  # this does not copy the rest
                except BlockingIOError:
                    return
                except OSError:
                    break
            self._unsent.clear()

    def receive(self, timeout: float | None) -> list[Message]:
        if self.ended:
            return []
        if self._decoder.pending:
            timeout = _REST_PATIENCE if timeout is None else min(timeout, _REST_PATIENCE)
        if self._unsent:
            self.flush()
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
        """Sends the rest until something arrives or the time is up; returns the time that remains."""
        deadline = None if timeout is None else time.monotonic() + timeout
        poller = self._make_poller(select.POLLIN | select.POLLOUT)
        left = timeout
        while self._unsent and not self.ended and (left is None or left > 0):
            events = poller.poll(None if left is None else left * 1000)
            if any(event & ~select.POLLOUT for _, event in events):
                break
            self.flush()
            left = None if deadline is None else deadline - time.monotonic()
        return left

    def read(self) -> list[Message]:
        """Returns the messages that have arrived."""
        try:
            data = self._sock.recv(self._room)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self._room = _LARGE_ROOM if len(data) == self._room else _ROOM
        try:
            messages = self._decoder.feed(data) if data else self._end()
            if self._decoder.pending:
                self._heard_at = time.monotonic()
        except ProtocolError as exc:  # a cell has written to the socket
            return self._kill(f"it sent something that is not a message ({exc})")
        for message in messages:
            if isinstance(message, Ask) and not self._take_question(message):
                return self._kill(f"it forged a question: number {message.ask} is not the next")
        return messages

    def _take_question(self, ask: Ask) -> bool:
        if self._questions is None:
            from kernelbox.wire._questions import Questions  # few cells ask

            self._questions = Questions(self._key, self._execution_id, self._runner_key)
        return self._questions.take(ask)

    def _kill(self, reason: str) -> list[Message]:
        """Kills a kernel that can no longer be trusted, and drops the messages that came with the forged one."""
        self.process.signal(signal.SIGKILL)
        self._killed = True
        self._end()
        return [Farewell(f"killed, because {reason}")]

    @property
    def awaits_rest(self) -> bool:
        return self._decoder.pending > 0

    @property
    def lacks_rest(self) -> bool:
        return self.awaits_rest and time.monotonic() - self._heard_at >= _REST_PATIENCE

    def still_serves(self) -> bool:
        if self._killed or self.process.wait(END_PATIENCE):
            return False
        try:
            with self.directory.open() as place:
                dial(place, SOCKET).close()
        except ConnectionRefusedError:
            end_closed(self.directory, self.process)
            return False
        except OSError:
            return False
        return True

    def cause(self, farewell: str = "") -> str:
        if self._killed:
            self.process.wait(KILL_PATIENCE)
        return super().cause(farewell)

    def interrupt(self, execution_id: str, *, harder: bool = False, tell: bool = False) -> None:
        """Sends the request; `harder` also sends a signal, which reaches a cell that holds the interpreter's lock."""
        self.process.wake()
        if harder:
            aim(self.directory, execution_id)
        self.send(Interrupt(execution_id, harder=harder, tell=tell))
        if harder:
            self.process.signal(DIRECT_INTERRUPT)

    def interrupt_holder(self) -> bool:
        state = read_state(self.directory)
        running = state.running if state is not None else ""
        if running:
            self.interrupt(running, tell=True)
            told = self._wait_for_reply(running)
            if told is not None:
                return bool(told.content.get("running"))
        self.interrupt(running, harder=True, tell=True)
        return self._wait_for_reply(running) is not None

    def _wait_for_reply(self, message_id: str) -> Reply | None:
        deadline = time.monotonic() + _INTERRUPT_PATIENCE
        while not self.ended and (left := deadline - time.monotonic()) > 0:
            for message in self.receive(left):
                if isinstance(message, Reply) and message.id == message_id:
                    return message
        return None

    def close(self) -> None:
        self.ended = True
        self._sock.close()
        self.process.close()

    def forget(self) -> None:
        self.inherited = True
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_sock"):
            self._sock.close()  # the interpreter ended while it was in the pool

    def _end(self) -> list[Message]:
        self.ended = True
        return []


def _dial(directory: KernelDirectory) -> Socket:
    with directory.open() as place:
        return dial(place, SOCKET)


def _dial_copy(directory: KernelDirectory, process: Process) -> Socket:
    """Connects to a kernel that was copied, when its socket is that of its process. When one has taken the place of
    another, its record names it a moment before it has the socket."""
    deadline = time.monotonic() + END_PATIENCE
    while True:
        sock = _dial(directory)
        peer = peer_of(sock)
        if peer is None or peer[0] == process.pid or not process.alive or time.monotonic() > deadline:
            return sock
        sock.close()
        time.sleep(0.001)
