"""System calls that Python has no function for, called in the C library. A refusal raises Unarmed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from kernelbox.wire._confinement import describe_failure

# Numbers are given to it as they are: they are below 2^31, and libffi extends them to what the registers hold.
_libc: Any = ctypes.CDLL(None, use_errno=True)
for _name in ("syscall", "unshare", "setns", "mount", "prctl", "capset"):
    getattr(_libc, _name)  # found here, and kept: not by every fork of the template

# These have one number on all architectures (include/uapi/asm-generic/unistd.h).
_OPEN_TREE, _MOVE_MOUNT, _CLOSE_RANGE, _OPENAT2, _MOUNT_SETATTR = 428, 429, 436, 437, 442
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446

_AT_FDCWD = -100
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40
_RESOLVE_NO_SYMLINKS = 4

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 4, 24, 38, 22
_SECCOMP_MODE_FILTER = 2
# Below a page, so that no core is written to a file; and the one value with which none is piped to a program (core(5)).
_NO_CORE = (1, 1)

_LANDLOCK_VERSION, _LANDLOCK_PATH_BENEATH = 1, 1
_CAPABILITY_VERSION = 0x20080522  # the third, with two words for each set


class Unarmed(Exception):
    """Raised when the system refuses a step of confining a process."""

    def __init__(self, step: str, error: OSError) -> None:
        super().__init__(describe_failure(step, error))
        self.step, self.error = step, error


def unshare(flags: int) -> None:
    _check("unshare", _libc.unshare(flags))


def enter_namespaces(process: int, flags: int) -> None:
    """Enters those namespaces of a process, by a descriptor of it, that the flags name."""
    _check("setns", _libc.setns(process, flags))


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    options = data.encode() if data else None
    result = _libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options)
    _check(f"mount {kind or target}", result)


@contextlib.contextmanager
def place(path: str) -> Iterator[int]:
    """Gives a descriptor of what is at a path, a link if that is one. No other link may be on the way.

    The host has named real paths; a cell of another kernel may have put a link there since.
    """
    how = struct.pack("QQQ", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)  # struct open_how
    fd = _check(f"openat2 {path}", _libc.syscall(_OPENAT2, _AT_FDCWD, os.fsencode(path), how, len(how)))
    try:
        yield fd
    finally:
        os.close(fd)


def clone_tree(path: str) -> int:
    """Returns a descriptor of a copy of what is mounted at a path and below it; it is mounted nowhere yet."""
    with place(path) as fd:
        return _clone(fd, "", path)


def clone_own(path: str) -> int:
    """Does the same for a path that no cell can have changed."""
    return _clone(_AT_FDCWD, path, path)


def _clone(fd: int, path: str, name: str) -> int:
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE | _AT_EMPTY_PATH
    return _check(f"open_tree {name}", _libc.syscall(_OPEN_TREE, fd, os.fsencode(path), flags))


def attach(tree: int, path: str) -> None:
    """Mounts a tree at a path."""
    with place(path) as fd:
        _attach(tree, fd, "", path)


def attach_own(tree: int, path: str) -> None:
    """Does the same for a path that no cell can have changed."""
    _attach(tree, _AT_FDCWD, path, path)


def _attach(tree: int, fd: int, path: str, name: str) -> None:
    flags = _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
    _check(f"move_mount {name}", _libc.syscall(_MOVE_MOUNT, tree, b"", fd, os.fsencode(path), flags))


def restrict(place: int | str, attributes: int) -> None:
    """Sets attributes of what is mounted at a path, or of a tree, and of all that is mounted below it."""
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)  # struct mount_attr: set, clear, propagation, user namespace
    fd, path = (_AT_FDCWD, os.fsencode(place)) if isinstance(place, str) else (place, b"")
    flags = _AT_RECURSIVE | _AT_EMPTY_PATH
    _check("mount_setattr", _libc.syscall(_MOUNT_SETATTR, fd, path, flags, wanted, len(wanted)))


def close_but(kept: Iterable[int]) -> None:
    """Closes every descriptor but these."""
    after = 0
    for fd in (*sorted(kept), 1 << 31):
        if fd > after:
            _check("close_range", _libc.syscall(_CLOSE_RANGE, after, fd - 1, 0))
        after = fd + 1


def drop_bounding_set() -> None:
    """Empties the set of capabilities that a program which is executed can get; the process itself keeps its own."""
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    if number == 0:
        _check("prctl PR_CAPBSET_DROP", -1)


def drop_capabilities() -> None:
    header, none = struct.pack("II", _CAPABILITY_VERSION, 0), bytes(24)  # the three sets, of two words each
    _check("capset", _libc.capset(header, none))


def forbid_new_privileges() -> None:
    _check("prctl PR_SET_NO_NEW_PRIVS", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def hide_memory() -> None:
    """Keeps the memory of this process from others of its user, those with CAP_SYS_PTRACE excepted."""
    _check("prctl PR_SET_DUMPABLE", _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def give_up_privileges(program: bytes) -> None:
    """Gives up core files, all capabilities, and the system calls that a program for seccomp(2) refuses.

    Done before any user code, so that nothing undoes the walls.
    """
    resource.setrlimit(resource.RLIMIT_CORE, _NO_CORE)
    drop_capabilities()
    filter_system_calls(program)


def landlock_version() -> int:
    """Returns what version of Landlock the system has; raises Unarmed if it has none."""
    return _check("Landlock", _libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION))


def make_ruleset(accesses: int, scopes: int) -> int:
    """Returns the descriptor of a set of rules which refuses these accesses to files, and what is out of scope."""
    attributes = struct.pack("QQQ", accesses, 0, scopes)  # struct landlock_ruleset_attr; its second is the network's
    return _check("Landlock", _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0))


def allow_beneath(ruleset: int, accesses: int, place: int) -> None:
    """Makes a set of rules allow accesses to what a descriptor leads to, and to everything below it."""
    rule = struct.pack("=Qi", accesses, place)  # struct landlock_path_beneath_attr, which is packed
    _check("Landlock", _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0))


def enter_domain(ruleset: int) -> None:
    """Puts this thread, and all that it forks, under a set of rules."""
    _check("Landlock", _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_system_calls(program: bytes) -> None:
    """Installs a program for seccomp(2); each of its instructions has 8 bytes."""
    loaded = ctypes.byref(_Program(len(program) // 8, program))
    _check("prctl PR_SET_SECCOMP", _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, loaded, 0, 0))


def _check(step: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise Unarmed(step, OSError(number, os.strerror(number)))
    return result
