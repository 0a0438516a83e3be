"""Runs a tool server or an installer, and ends it and everything it started when the application has ended.

A program of its own, run by its path without the packages of any environment: `_supervisor.py LIFELINE COMMAND…`. The
server gets the standard streams; LIFELINE is a pipe whose other end only the application has.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

# Seconds for a server to end after its stdin is closed, and again after SIGTERM.
_GRACE = 2.0
_LAST_GRACE = 1.0

# Seconds between checks of the server, on systems without pidfds.
_LOOK_EVERY = 0.2

_PR_SET_CHILD_SUBREAPER = 36

# The exit status of shells for a command that cannot be started.
_NOT_STARTED = 127


def main() -> None:
    """Runs the server to its end."""
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lifeline, False)
    _become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the application's terminal is the application's
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    status = 0
    try:  # begins before the server does: SIGTERM can come at any moment
        server = _start(command)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)  # or the ends of the server's streams could not be seen
        _watch(server, lifeline)
        status = _end(server)
    finally:
        _kill_all()
        os._exit(status)


def _start(command: list[str]) -> int:
    try:
        return os.posix_spawnp(
            command[0], command, os.environ, setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGTERM]
        )
    except OSError as exc:
        sys.stderr.write(f"cannot start {command[0]!r}: {exc.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_STARTED)


def _watch(server: int, lifeline: int) -> None:
    """Waits for the end of the server or of the application."""
    poller = select.poll()
    poller.register(lifeline, select.POLLIN)
    wait = None
    if hasattr(os, "pidfd_open"):
        poller.register(os.pidfd_open(server), select.POLLIN)
    else:
        wait = _LOOK_EVERY * 1000
    while not poller.poll(wait) and _lives(server):
        pass


def _end(server: int) -> int:
    """Lets the server end by itself, since its stdin is closed, or asks it to. Returns its status."""
    for patience in (_GRACE, _LAST_GRACE):
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            done, status = os.waitpid(server, os.WNOHANG)
            if done:
                return abs(os.waitstatus_to_exitcode(status)) & 0xFF
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)
    return 0


def _kill_all() -> None:
    """Kills every process below this one. Orphans become its children, so the next pass finds them."""
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)  # where there is no /proc: the group that we lead, this process included
        return []


def _lives(server: int) -> bool:
    try:
        os.kill(server, 0)
    except OSError:
        return False
    return os.waitid(os.P_PID, server, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _become_subreaper() -> None:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    main()
