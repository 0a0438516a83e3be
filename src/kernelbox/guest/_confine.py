"""How a forked process becomes a kernel in a sandbox, before it runs any code of a user's.

    template ─fork→ maker            namespaces of its own; builds what is seen in them
                    ├─spawn→ first   pid 1 of the namespace: when it ends the system ends all that is in there
                    └─fork→  kernel  pid 2: waits for the maker, gives up all privileges, filters system calls

Each page that a kernel writes to is its own from then on, and so is what the maker wrote to before it forked the
kernel. Therefore the maker forks as soon as there are namespaces, and does after that what it can do in the kernel's
stead. It tells the template of the two, builds, tells the kernel, and ends; the template is their parent then.

The first process waits at a pipe whose other end only the kernel holds, so that it does not outlive the kernel when
the template is gone; or at one that ends with the template, if that looks after limits which the kernel must not be
without.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from typing import NoReturn

from kernelbox.guest._descriptors import read_all
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

# What the maker's message to the kernel has between paths and the filter, and at its end: it might be killed before.
_FILTER, _WHOLE = b"\0\0", b"made"

# Reads its input until it ends, and takes a tenth of a megabyte; where systems have it, NixOS at the last. No other
# place is looked at: a cell must not choose what runs here.
FIRST = ("/bin/cat", "/usr/bin/cat", "/run/current-system/sw/bin/cat")

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


def make(told: int, confinement: int, lifeline: int, *, own_network: bool) -> tuple[int, str, bytes]:
    """Makes the sandbox and the kernel's process in it, in which this returns when the maker has ended: with a pipe
    that keeps the first process alive, the scratch directory and the filter. If the maker fails that process ends.

    The template is told through `told`. With a `lifeline`, a pipe that ends with the template, the first process waits
    there, and the kernel does not outlive the template.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(_NAMESPACES | (CLONE_NEWNET if own_network else 0))
    drop_bounding_set()
    forbid_new_privileges()
    waits, alive = os.pipe()
    made, says = os.pipe()
    first = _start_first(waits if lifeline < 0 else lifeline)
    os.close(waits)
    kernel = os.fork()
    if kernel > 0:
        os.close(alive)
        os.close(made)
        os.write(told, MADE.pack(first, kernel))
        _keep_ids(user, group)
        _furnish(Confinement.decode(read_all(confinement)), says, own_network)
    os.close(says)
    message = read_all(made)  # to the end: what only the two share need not be copied when the maker has gone
    if not message.endswith(_WHOLE):
        os._exit(1)  # the maker reports why
    paths, _, program = message.removesuffix(_WHOLE).partition(_FILTER)
    scratch, *writable = map(os.fsdecode, paths.split(b"\0"))
    show_processes()
    keep_to(writable)
    return alive, scratch, program


def _furnish(confinement: Confinement, says: int, own_network: bool) -> NoReturn:
    """Makes what is there in the namespaces, a network with a loopback and files; tells the kernel, and ends."""
    if own_network:
        _raise_loopback()
    build_view(confinement)
    os.makedirs(f"{confinement.scratch}/{PACKAGES}")
    for path, target in confinement.links.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    writable = {"/dev", *(mount.path for mount in confinement.mounts if mount.kind in ("write", "private"))}
    message = b"\0".join(map(os.fsencode, (confinement.scratch, *writable))) + _FILTER + confinement.filter + _WHOLE
    with contextlib.suppress(BrokenPipeError):  # the kernel has been killed
        while message:
            message = message[os.write(says, message) :]
    os._exit(0)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        except OSError as exc:
            raise Unarmed("loopback", exc) from exc


def _keep_ids(user: int, group: int) -> None:
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
    dup2 = os.POSIX_SPAWN_DUP2
    actions = ((dup2, waits, 0), (dup2, waits, 1), (dup2, waits, 2))  # it has nothing to say, and no place to say it
    leave_none_open()  # cells can reach what it has open
    for program in FIRST:
        try:
            return os.posix_spawn(program, ["cat"], {}, file_actions=actions, setsid=True)
        except OSError as exc:
            failed = exc
    raise Unarmed("start cat", failed) from failed
