"""Whether a kernel has a network, and which failures its absence explains."""

from __future__ import annotations

import errno
import socket
import subprocess

from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# The interfaces of this process's network (proc_pid_net(5)): two lines of headings, then one for each.
_INTERFACES = "/proc/self/net/dev"
_HEADINGS = 2

_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)

# Commands that download, as their command lines name them.
_DOWNLOADERS = ("pip", "uv", "conda", "mamba", "curl", "wget", "git", "npm")

# Exceptions in a chain that are looked at.
_CHAIN = 10


def wants_network(exc: BaseException) -> bool:
    """Tells whether an exception, or one that led to it, says that something could not be reached or downloaded."""
    link: BaseException | None = exc
    for _ in range(_CHAIN):
        if link is None:
            return False
        if isinstance(link, socket.gaierror) or (isinstance(link, OSError) and link.errno in _UNREACHABLE):
            return True
        if type(link).__name__ == "URLError" and isinstance(getattr(link, "reason", None), socket.gaierror):
            return True
        if isinstance(link, subprocess.CalledProcessError):
            words = link.cmd if isinstance(link.cmd, str) else " ".join(map(str, link.cmd or ()))
            return any(word in words for word in _DOWNLOADERS)
        link = link.__cause__ or link.__context__
    return False


def has_network() -> bool:
    """Tells whether there is an interface beside the loopback; True where that is not known."""
    try:
        with open(_INTERFACES, encoding="ascii", errors="replace") as file:
            names = [line.partition(":")[0].strip() for line in file.readlines()[_HEADINGS:]]
    except OSError:
        return True
    return names != ["lo"] and bool(names)
