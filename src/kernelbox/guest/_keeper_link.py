"""What a kernel and its keeper say to each other about copies: messages with descriptors, over a socket of packets, on
which the system names the sender."""

from __future__ import annotations

import _socket
import struct
from _socket import socket as Socket
from dataclasses import dataclass

from kernelbox.guest._descriptors import close
from kernelbox.guest._stdlib import contextlib
from kernelbox.wire._builtins import keep_builtins
from kernelbox.wire._framing import Decoder, encode
from kernelbox.wire._messages import Message

keep_builtins(globals())

# More than a message has, and more descriptors than come with one.
_ROOM = 65536
_MOST_DESCRIPTORS = 32

# Whether the system names the sender of a message.
CAN_LINK = hasattr(_socket, "SO_PASSCRED")

_SOL_SOCKET: int = _socket.SOL_SOCKET
_SCM_RIGHTS: int = getattr(_socket, "SCM_RIGHTS", -1)
_SCM_CREDENTIALS: int = getattr(_socket, "SCM_CREDENTIALS", -1)
_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = _socket.CMSG_SPACE(_CREDENTIALS.size) + _socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)


@dataclass(frozen=True, slots=True)
class Received:
    """A message, the process that has sent it, and the descriptors that came with it."""

    message: Message
    sender: int
    fds: list[int]


def make_link() -> tuple[int, int]:
    """Returns the keeper's end of a link and the kernel's."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    ours.setsockopt(_SOL_SOCKET, _socket.SO_PASSCRED, 1)
    return ours.detach(), theirs.detach()


def send_packet(link: int, message: Message, fds: list[int] | None = None) -> None:
    """Sends a message with descriptors; raises OSError, also if the link is full.

    It never waits: a keeper has to go on for all kernels, and a cell may never read what it is sent.
    """
    rights = [(_SOL_SOCKET, _SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    sock = Socket(fileno=link)
    try:
        sock.sendmsg([encode(message)], rights, _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT)
    finally:
        sock.detach()


def receive_packet(link: int, *, wait: bool = True, peek: bool = False) -> Received | None:
    """Returns the next message; None if the other end is closed. Raises OSError, also for bytes that are not one.

    With `peek` the message stays there to be received again, and the descriptors are copies.
    """
    sock = Socket(fileno=link)
    try:
        flags = _socket.MSG_CMSG_CLOEXEC | (0 if wait else _socket.MSG_DONTWAIT) | (_socket.MSG_PEEK if peek else 0)
        data, ancillary, _, _ = sock.recvmsg(_ROOM, _ANCILLARY, flags)
    finally:
        sock.detach()
    fds, sender = list[int](), 0
    for level, kind, value in ancillary:
        if (level, kind) == (_SOL_SOCKET, _SCM_RIGHTS):
            fds += struct.unpack(f"{len(value) // 4}i", value[: len(value) // 4 * 4])
        elif (level, kind) == (_SOL_SOCKET, _SCM_CREDENTIALS):
            sender = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])[0]
    with contextlib.ExitStack() as undo:
        undo.callback(close, *fds)
        messages = Decoder().feed(data) if data else []
        if messages:
            undo.pop_all()
            return Received(messages[0], sender, fds)
    return None
