"""How a forked process becomes a kernel in a sandbox, before it runs any code of a user's.

    template ─fork→ maker            namespaces of its own
                    ├─spawn→ first   pid 1 of the namespace: when it ends the system ends all that is in there
                    └─fork→  kernel  pid 2: builds what it sees, gives up all privileges, filters system calls

The maker does no more than it must: the pages that it touches are copied, for it and again for the kernel. It tells the
template of the two, and ends; the template is their parent then. The first process waits at a pipe whose other end only
the kernel holds, so that it does not outlive the kernel when the template is gone; or at one that ends with the
template, if that looks after limits which the kernel must not be without.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import NoReturn

from kernelbox.guest._landlock import keep_to
from kernelbox.guest._system_calls import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    Unarmed,
    drop_bounding_set,
    forbid_new_privileges,
    leave_none_open,
    unshare,
)
from kernelbox.guest._view import build_view, show_processes
from kernelbox.wire._confinement import Confinement
from kernelbox.wire._layout import PACKAGES

_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP

# What the maker tells the template: the first process and the kernel.
MADE = struct.Struct("ii")

# Reads its input until it ends, and takes a tenth of a megabyte; where systems have it, NixOS at the last. No other
# place is looked at: a cell must not choose what runs here.
FIRST = ("/bin/cat", "/usr/bin/cat", "/run/current-system/sw/bin/cat")

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def make(template: socket.socket, report: int, lifeline: int, *, own_network: bool) -> int:
    """Makes the namespaces, and in them the kernel's process, in which this returns what keeps the first process alive.

    Only the kernel keeps `report`: that it ends shows that the kernel has. With a `lifeline`, a pipe that ends with the
    template, the first process waits there, and the kernel does not outlive the template.
    """
    with template:
        _enter_namespaces(own_network)
        drop_bounding_set()
        forbid_new_privileges()
        waits, alive = os.pipe()
        first = _start_first(waits if lifeline < 0 else lifeline)
        os.close(waits)
        kernel = os.fork()
        if kernel > 0:
            os.close(alive)
            os.close(report)
            _leave(template, first, kernel)
    return alive


def furnish(confinement: Confinement, *, own_network: bool) -> None:
    """Makes, in the kernel's process, what is there in the namespaces: a network with a loopback, files, processes."""
    if own_network:
        _raise_loopback()
    build_view(confinement)
    show_processes()
    os.makedirs(f"{confinement.scratch}/{PACKAGES}")
    for path, target in confinement.links.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    keep_to({"/dev", *(mount.path for mount in confinement.mounts if mount.kind in ("write", "private"))})


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        except OSError as exc:
            raise Unarmed("loopback", exc) from exc


def _enter_namespaces(own_network: bool) -> None:
    user, group = os.geteuid(), os.getegid()
    unshare(_NAMESPACES | (CLONE_NEWNET if own_network else 0))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        _write(f"/proc/self/{name}", text)


def _write(path: str, text: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, text.encode())
        os.close(fd)
    except OSError as exc:
        raise Unarmed(f"write {os.path.basename(path)}", exc) from exc


def _start_first(waits: int) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, waits, fd) for fd in range(3)]  # it has nothing to say, and no place to say it
    leave_none_open()  # cells can reach what it has open
    for program in FIRST:
        try:
            return os.posix_spawn(program, ["cat"], {}, file_actions=actions, setsid=True)
        except OSError as exc:
            failed = exc
    raise Unarmed("start cat", failed) from failed


def _leave(template: socket.socket, first: int, kernel: int) -> NoReturn:
    """Tells the template who its new children are, and ends: the kernel need not copy what only the two share then."""
    try:
        template.sendall(MADE.pack(first, kernel))
    finally:
        os._exit(0)
