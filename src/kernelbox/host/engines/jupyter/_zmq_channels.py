"""The ZeroMQ sockets of one client of a Jupyter kernel, and one wait over all that can happen to it."""

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
    from typing import Any, Literal, Protocol

    import zmq

    from kernelbox.host.engines.jupyter._connection_file import JupyterLink
    from kernelbox.host.engines.jupyter._jupyter_message import KernelMessage
    from kernelbox.host.store._kernel_directory import KernelDirectory

    Channel = Literal["shell", "iopub", "control", "stdin"]

    class Combined(Protocol):
        """A descriptor that is readable while one of several is: epoll(7) or kqueue(2)."""

        def fileno(self) -> int: ...

        def close(self) -> None: ...


# Messages of the kernel that may wait in ZeroMQ until a thread of ours has taken them: a kernel drops what its clients
# have no room for, and a busy machine may keep that thread for a while.
_ROOM = 20_000

# Replies that may wait: a client has few requests open.
_REPLIES = 16

# A kernel that is starting binds its sockets soon; ZeroMQ's own pace is 100 ms.
_RECONNECT_MS = 20

# ZeroMQ allows 1,023 by itself, three of which each connection takes.
_MAX_SOCKETS = 65_000

_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


class ZmqChannels:
    """Sends requests and takes messages; `wait` also watches descriptors that are not ZeroMQ's."""

    def __init__(self, link: JupyterLink, directory: KernelDirectory, watched: list[int]) -> None:
        import zmq

        self._codec = SignedCodec(link.key)
        self._held = contextlib.ExitStack()
        self._poller = zmq.Poller()
        self._sockets: dict[Channel, zmq.Socket[bytes]] = {}
        self._watched = watched
        self._identity = os.urandom(8).hex().encode()  # a kernel asks on stdin who has asked it on shell
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
        """Opens the channel on which cells ask for input; before `combine`, which would not know of it."""
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

    def send(
        self,
        channel: Channel,
        kind: str,
        content: dict[str, Any],
        message_id: str,
        metadata: dict[str, Any] | None = None,
        buffers: tuple[bytes, ...] = (),
    ) -> None:
        """Sends a request; it waits in our own memory while the kernel is not there yet."""
        self._sockets[channel].send_multipart(self._codec.encode(kind, content, message_id, metadata, buffers))

    def take(self) -> Iterator[tuple[Channel, KernelMessage | LeftOut]]:
        """Yields what has arrived; of two messages that race, what was published comes first."""
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
        """Waits until there is something to take; returns whether there is."""
        return bool(self._poller.poll(None if timeout is None else max(0, math.ceil(timeout * 1000))))

    def wait_for_message(self, timeout: float, *channels: Channel) -> bool:
        """Waits for the kernel only, on all channels or those that are named; returns whether it has said something."""
        import zmq

        poller = zmq.Poller()
        for channel, sock in self._sockets.items():
            if not channels or channel in channels:
                poller.register(sock, zmq.POLLIN)
        if not channels:
            poller.register(self._published.fileno(), zmq.POLLIN)
        return bool(poller.poll(math.ceil(timeout * 1000)))

    def combine(self) -> Combined:
        """Returns one descriptor for everything that `wait` waits for. As with any of ZeroMQ's, take all then."""
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
        """Leaves ZeroMQ's sockets as they are: the threads that would close them are our parent's."""
        self._published.forget()


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """Returns ZeroMQ's context of this process: its thread does not survive a fork."""
    import zmq

    pid = os.getpid()
    if pid not in _contexts:
        _contexts[pid] = zmq.Context()
        _contexts[pid].set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
    return _contexts[pid]
