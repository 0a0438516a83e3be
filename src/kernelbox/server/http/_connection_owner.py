"""Whose process is at the other end of a connection: every account of the machine can make one over loopback.

Only the transport tells. An address in the head of a request is what its sender says, and an address alone can come to
mean another connection: a client that resets its connection leaves the port to the next one. So the owner of the other
end counts only if our own end is still connected after the question, for then both ends belong to one connection.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from asyncio import BaseTransport
from ipaddress import IPv4Address, IPv6Address, ip_address

from kernelbox.base._errors import EXHAUSTED

# sock_diag(7): one question, about one socket, which is named by its two ends.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_HEADER = struct.Struct("=LHHLL")
_ENDS = struct.Struct("!HH16s16s")
_WHICH_INTERFACE_AND_COOKIE = struct.pack("=LLL", 0, 0xFFFF_FFFF, 0xFFFF_FFFF)  # any
_ANSWER = struct.Struct("=BBBB48sLLLLL")
_ESTABLISHED = 1  # the state of a socket that is connected, in both directions

Address = IPv4Address | IPv6Address


def made_by_user(transport: BaseTransport | None, *, is_ours: bool = False) -> bool | None:
    """Returns whether a process of the user who runs this one, or of the superuser, made a local connection.

    None means that too much is open here to ask. `is_ours` tells that a socket at a path is of a mode that no other
    account can connect to, for systems that cannot say who did.
    """
    used = None if transport is None else transport.get_extra_info("socket")
    if used is None:
        return False
    try:
        # Another object for the socket: those of other event loops are not whole, and their family may be wrong.
        with socket.socket(fileno=os.dup(used.fileno())) as ours:
            return _is_unix_peer_user(ours, is_ours) if ours.family == socket.AF_UNIX else _is_tcp_peer_user(ours)
    except OSError as exc:
        return None if exc.errno in EXHAUSTED else False


def _is_unix_peer_user(ours: socket.socket, is_ours: bool) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return is_ours
    _, uid, _ = struct.unpack("3i", ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return _is_user(uid)


def _is_tcp_peer_user(ours: socket.socket) -> bool:
    if ours.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    here, there = _end(ours.getsockname()), _end(ours.getpeername())
    if not here[0].is_loopback:
        return False
    if sys.platform != "linux":
        return there[0].is_loopback  # it is unknown which account connected
    return (
        _is_user(find_owner(there, here)) and ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
    )


def _is_user(uid: int | None) -> bool:
    return uid in (0, os.geteuid())


def _end(name: tuple[str, int]) -> tuple[Address, int]:
    return parse_address(name[0].partition("%")[0]), name[1]


def parse_address(text: str) -> Address:
    """Returns an address, an IPv4 one if it is mapped into IPv6; raises ValueError."""
    address = ip_address(text)
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def find_owner(client: tuple[Address, int], server: tuple[Address, int]) -> int | None:
    """Returns the user id of the process that has the client's end of a connection; None if that is not known.

    Raises OSError if too much is open here to ask.
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
            raise
        return None
    if len(said) < _HEADER.size + _ANSWER.size or _HEADER.unpack_from(said)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    _, state, _, _, _, _, _, _, owner, inode = _ANSWER.unpack_from(said, _HEADER.size)
    # A connection that no process holds any more has no file; the kernel reports the superuser as its owner.
    return int(owner) if inode and state == _ESTABLISHED else None
