"""The ZeroMQ sockets of one client of a Jupyter kernel, with one wait for all of them and for other descriptors."""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys

from kernelbox.host.engines.jupyter._connection_file import reachable_directory
from kernelbox.host.engines.jupyter._jupyter_message import LONGEST_FRAME, SignedCodec
from kernelbox.host.engines.jupyter._subscription import LeftOut, Subscription

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal, Protocol

    import zmq

    from kernelbox.host.engines.jupyter._actions import SendRequest
    from kernelbox.host.engines.jupyter._connection_file import JupyterLink
    from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
    from kernelbox.host.store._kernel_directory import KernelDirectory

    Channel = Literal["shell", "iopub", "control", "stdin"]

    class Combined(Protocol):
        """A descriptor that is readable while any of several is: epoll(7) or kqueue(2)."""

        def fileno(self) -> int: ...

        def close(self) -> None: ...


# The most publications that ZeroMQ buffers until our thread takes them, which a busy machine may delay. A kernel drops
# messages that its clients have no room for.
_ROOM = 20_000

# The most replies that ZeroMQ buffers; a client has few open requests.
_REPLIES = 16

# How often to retry while a kernel starts; ZeroMQ's default is 100 ms.
_RECONNECT_MS = 20

# ZeroMQ's default is 1,023, and each connection needs three.
_MAX_SOCKETS = 65_000

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


class ZmqChannels:
    """Sends requests and receives messages; `wait` also watches other descriptors."""

    def __init__(self, link: JupyterLink, directory: KernelDirectory, watched: list[int]) -> None:
        import zmq

        self._codec = SignedCodec(link.key)
        self._held = contextlib.ExitStack()
        self._poller = zmq.Poller()
        self._sockets: dict[Channel, zmq.Socket[bytes]] = {}
        self._watched = watched
        self._identity = os.urandom(8).hex().encode()  # a kernel asks this client on stdin
        self._link = link
        self._path = self._held.enter_context(reachable_directory(directory))
        sock = self._new_socket(zmq.SUB)
        sock.setsockopt(zmq.SUBSCRIBE, b"")
        sock.connect(link.address(self._path, "iopub"))
        self._published = Subscription(sock)
        self._held.callback(self._published.close)
        self._connect("shell")
        self._connect("control")
        for fd in (self._published.fileno(), *watched):
            self._poller.register(fd, zmq.POLLIN)

    def take_questions(self) -> None:
        """Opens the channel on which cells ask for input. Call it before `combine`."""
        if "stdin" not in self._sockets:
            self._connect("stdin")

    def _connect(self, channel: Channel) -> None:
        import zmq

        sock = self._sockets[channel] = self._new_socket(zmq.DEALER)
        self._held.callback(sock.close)
        sock.setsockopt(zmq.IDENTITY, self._identity)
        sock.connect(self._link.address(self._path, channel))
        self._poller.register(sock, zmq.POLLIN)

    @staticmethod
    def _new_socket(kind: int) -> zmq.Socket[bytes]:
        import zmq

        sock = _context().socket(kind)
        sock.linger = 0
        sock.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        sock.setsockopt(zmq.MAXMSGSIZE, LONGEST_FRAME)
        sock.setsockopt(zmq.RCVHWM, _ROOM if kind == zmq.SUB else _REPLIES)
        return sock

    def send(self, request: SendRequest) -> None:
        """Sends a request; ZeroMQ buffers it until the kernel is there."""
        frames = self._codec.encode(request.kind, request.content, request.id, request.metadata, request.buffers)
        self._sockets[request.channel].send_multipart(frames)

    def take(self) -> Iterator[tuple[Channel, KernelMessage | LeftOut]]:
        """Yields the messages that have arrived, publications first."""
        import zmq

        for frames in self._published.take():
            published = frames if isinstance(frames, LeftOut) else self._codec.decode(frames)
            if published is not None:
                yield "iopub", published
        for channel, sock in self._sockets.items():
            with contextlib.suppress(zmq.Again):
                while True:
                    message = self._codec.decode(sock.recv_multipart(zmq.DONTWAIT))
                    if message is not None:
                        yield channel, message

    def wait(self, timeout: float | None) -> bool:
        """Waits until a message or a watched descriptor is ready; returns whether one is."""
        return bool(self._poller.poll(None if timeout is None else max(0, math.ceil(timeout * 1000))))

    def wait_for_message(self, timeout: float, *channels: Channel) -> bool:
        """Waits for a message of the kernel, on all channels or these; returns whether there is one."""
        import zmq

        poller = zmq.Poller()
        for channel, sock in self._sockets.items():
            if not channels or channel in channels:
                poller.register(sock, zmq.POLLIN)
        if not channels:
            poller.register(self._published.fileno(), zmq.POLLIN)
        return bool(poller.poll(math.ceil(timeout * 1000)))

    def combine(self) -> Combined:
        """Returns one descriptor for everything that `wait` waits for. When it is readable, take all messages."""
        import zmq

        fds = [int(sock.getsockopt(zmq.FD)) for sock in self._sockets.values()]
        fds += [self._published.fileno(), *self._watched]
        if sys.platform == "linux":
            epoll = select.epoll()
            for fd in fds:
                epoll.register(fd, select.EPOLLIN)
            return epoll
        else:  # noqa: RET505  # type checkers pass over it here
            kqueue = select.kqueue()
            kqueue.control([select.kevent(fd, select.KQ_FILTER_READ, select.KQ_EV_ADD) for fd in fds], 0)
            return kqueue

    def close(self) -> None:
        self._held.close()

    def forget(self) -> None:
        """Leaves ZeroMQ's sockets as they are, because the threads that would close them belong to the parent."""
        self._published.forget()


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """Returns this process's ZeroMQ context; its thread does not survive a fork."""
    import zmq

    pid = os.getpid()
    if pid not in _contexts:
        _contexts[pid] = zmq.Context()
        _contexts[pid].set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
    return _contexts[pid]
