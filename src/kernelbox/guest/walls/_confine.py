"""How a forked process enters the sandbox that its template's maker has made, before any user code.

The template forks it into the sandbox's processes; the rest it enters itself, and then a user namespace in the
template's, in which it owns nothing of what it sees.
"""

from __future__ import annotations

import contextlib
import os

from kernelbox.guest.walls import _system_calls as _calls
from kernelbox.guest.walls._file_view import show_processes
from kernelbox.guest.walls._landlock import keep_to
from kernelbox.guest.walls._sandbox_maker import read_told
from kernelbox.guest.walls._system_calls import Unarmed

_NAMESPACES = _calls.CLONE_NEWNS | _calls.CLONE_NEWIPC | _calls.CLONE_NEWUTS

# Resources that Linux counts for each user. One sandbox could use them all up, so each gets this share.
_SHARES_OF_USER = {"max_inotify_instances": 16, "max_inotify_watches": 8192}

# The version of Linux from which a pid namespace has a bound of its own. Before, it is one for the whole machine.
_OWN_NUMBERS = (6, 14)

# Once the numbers have been used up, those up to this one are not used again.
_RESERVED_NUMBERS = 300

# The number of all users without a number in a user namespace, unless the system says otherwise.
_NOBODY = 65534


def enter_user_namespace() -> None:
    """Gives the template a user namespace of its own, in which it may make others; raises Unarmed.

    Its user gets another number there than the one for unknown users, so that those are not taken for this user.
    """
    user, group = os.geteuid(), os.getegid()
    _calls.unshare(_calls.CLONE_NEWUSER)
    unknown = _NOBODY
    with contextlib.suppress(OSError), open("/proc/sys/kernel/overflowuid") as file:
        unknown = int(file.read())
    here = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
    _map_ids(here, (user if user != unknown else unknown - 1, user), (group, group))
    os.close(here)


def fork_beside(first: int) -> int:
    """Forks a process into the pid namespace of a sandbox's first process; raises OSError or Unarmed.

    All that the calling process forks from now on goes there: it has no privilege to go back.
    """
    _calls.enter_namespaces(first, _calls.CLONE_NEWPID)
    return os.fork()


def enter(first: int, told: int, *, user: int, own_network: bool, processes: float) -> tuple[str, bytes]:
    """Enters a sandbox when it is done; returns its scratch directory and the filter of system calls.

    A limit of `processes`, if it is not 0, bounds their numbers too, as far as the system can: for the superuser it
    counts nothing else. Raises Unarmed, or RuntimeError if the sandbox could not be made.
    """
    group, outside = os.getegid(), os.geteuid()
    here = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)  # in the sandbox, where it is read-only, it could not be
    settings = _open_settings()
    if processes and _numbers_are_own():
        _set(settings, "kernel/pid_max", _RESERVED_NUMBERS + processes + 1)
    scratch, writable, program = read_told(told)
    _calls.enter_namespaces(first, _NAMESPACES | (_calls.CLONE_NEWNET if own_network else 0))
    _calls.unshare(_calls.CLONE_NEWCGROUP)
    show_processes()
    _calls.unshare(_calls.CLONE_NEWUSER)
    _map_ids(here, (user, outside), (group, group))
    for name, share in _SHARES_OF_USER.items():
        _set(settings, f"user/{name}", share)
    if settings is not None:
        os.close(settings)
    os.close(here)
    _calls.drop_bounding_set()
    _calls.forbid_new_privileges()
    keep_to(writable)
    return scratch, program


def _open_settings() -> int | None:
    """Opens the directory of the system's settings, which some containers do not show."""
    with contextlib.suppress(OSError):
        return os.open("/proc/sys", os.O_PATH | os.O_DIRECTORY)
    return None


def _numbers_are_own() -> bool:
    try:
        major, minor, *_ = os.uname().release.split(".")
        return (int(major), int(minor)) >= _OWN_NUMBERS
    except ValueError:
        return False


def _set(settings: int | None, name: str, value: float) -> None:
    """Sets what holds in this process's namespaces, where the system has it and lets it be written."""
    if settings is None:
        return
    with contextlib.suppress(OSError):
        fd = os.open(name, os.O_WRONLY, dir_fd=settings)
        with contextlib.closing(os.fdopen(fd, "w")) as file:
            file.write(f"{value:.0f}")


def _map_ids(process: int, user: tuple[int, int], group: tuple[int, int]) -> None:
    """Says which number a user and a group have in the user namespace that a process has just entered."""
    maps = (("setgroups", "deny"), ("uid_map", f"{user[0]} {user[1]} 1"), ("gid_map", f"{group[0]} {group[1]} 1"))
    for name, text in maps:
        try:
            fd = os.open(name, os.O_WRONLY, dir_fd=process)
            os.write(fd, text.encode())
            os.close(fd)
        except OSError as exc:
            raise Unarmed(f"write {name}", exc) from exc
