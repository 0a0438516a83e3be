"""Whose process is at the other end of a connection: every account of the machine can make one over loopback."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from ipaddress import IPv4Address, IPv6Address

from kernelbox.base._errors import EXHAUSTED, LimitReached

# sock_diag(7): one question, about one socket, which is named by its two ends.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_HEADER = struct.Struct("=LHHLL")
_ENDS = struct.Struct("!HH16s16s")
_WHICH_INTERFACE_AND_COOKIE = struct.pack("=LLL", 0, 0xFFFF_FFFF, 0xFFFF_FFFF)  # any
_ANSWER = struct.Struct("=BBBB48sLLLLL")
_LISTENS = 10  # the state of a socket that has no other end

Address = IPv4Address | IPv6Address


def can_tell() -> bool:
    """Returns whether this system can say who made a connection."""
    return sys.platform == "linux"


def is_users_own(client: tuple[Address, int], server: tuple[Address, int]) -> bool:
    """Returns whether a local connection belongs to the user who runs this process, or to the superuser."""
    owner = find_owner(client, server)
    return owner is not None and owner in (0, os.geteuid())


def find_owner(client: tuple[Address, int], server: tuple[Address, int]) -> int | None:
    """Returns the user id of the process that made a connection; None if it has closed it, or if that is not known.

    Raises LimitReached if too much is open here to ask.
    """
    if client[0].version != server[0].version:
        return None
    family = socket.AF_INET if client[0].version == 4 else socket.AF_INET6
    ends = _ENDS.pack(client[1], server[1], client[0].packed, server[0].packed)
    question = struct.pack("=BBBBL", family, socket.IPPROTO_TCP, 0, 0, 0xFFFF_FFFF) + ends + _WHICH_INTERFACE_AND_COOKIE
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
            netlink.send(_HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0) + question)
            said = netlink.recv(4096, socket.MSG_DONTWAIT)  # it is answered before `send` returns
    except OSError as exc:
        if exc.errno in EXHAUSTED:
            raise LimitReached("too much is open in this server; try again later", of_server=True) from exc
        return None
    if len(said) < _HEADER.size + _ANSWER.size or _HEADER.unpack_from(said)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    _, state, _, _, _, _, _, _, owner, inode = _ANSWER.unpack_from(said, _HEADER.size)
    # A connection that no process holds any more has no file; the kernel reports the superuser as its owner.
    return int(owner) if inode and state != _LISTENS else None


def find_out_owner(transport: asyncio.Transport) -> dict[str, bool]:
    """Returns what the system knows about a connection over a Unix socket; nothing for any other."""
    used = transport.get_extra_info("socket")
    if used is None or used.family != socket.AF_UNIX:
        return {}
    if not hasattr(socket, "SO_PEERCRED"):
        return {"is_own": True}  # by the mode of the socket, which no other account can connect to
    with socket.socket(fileno=os.dup(used.fileno())) as again:  # other event loops have no whole socket here
        said = again.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", said)
    return {"is_own": uid in (0, os.geteuid())}
