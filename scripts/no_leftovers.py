#!/usr/bin/env python3
"""Runs a command and fails if any process that it started, however indirectly, outlives it.

On Linux this process becomes the "child subreaper" (prctl(2)) of the command: whatever is orphaned below it,
in a new session or not, whatever it calls itself, becomes our child instead of init's. What is left at the
end is therefore exact, and other kernels on the machine are never mistaken for ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
# Seconds a process may take to follow the command that it belonged to; a template of the tests stays for 20.
GRACE = 40.0
POLL = 0.05


def main() -> int:
    command = sys.argv[1:]
    if not command:
        print("usage: no_leftovers.py COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    if not become_subreaper():
        print("no_leftovers: this system has no child subreaper; running without the check", flush=True)
        return subprocess.run(command, check=False).returncode

    status = run_and_reap(command)
    leftovers = wait_for_children(GRACE)
    if not leftovers:
        return status
    print(f"no_leftovers: error: left behind by `{' '.join(command)}`:", file=sys.stderr)
    for pid in leftovers:
        describe(pid)
    kill_children()
    return status or 1


def become_subreaper() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    failed: int = ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not failed


def run_and_reap(command: list[str]) -> int:
    """Waits for the command, burying its orphans meanwhile: a zombie would look alive to the tests."""
    # Not subprocess: its own waiting would race with ours.
    main_pid = os.posix_spawnp(command[0], command, os.environ)
    while True:
        pid, status = os.wait()
        if pid == main_pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def wait_for_children(grace: float) -> list[int]:
    """Returns the children that are still there when the grace is over."""
    deadline = time.monotonic() + grace
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() >= deadline:
            return children()
        time.sleep(POLL)


def kill_children() -> None:
    """Kills until none is left or the grace is over; one round's orphans are the next one's children."""
    deadline = time.monotonic() + GRACE
    while (left := wait_for_children(0)) and time.monotonic() < deadline:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def children(parent: int = 0) -> list[int]:
    """Returns the children of a process, of this one if none is named."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == (parent or os.getpid()):
            found.append(int(stat.parent.name))
    return sorted(found)


def describe(pid: int, indent: str = "  ") -> None:
    """Prints what is known of a process and of those below it: what it is called, its age and what it has open."""
    print(f"{indent}{pid}  {command_line(pid)}  ({age(pid)} s, {', '.join(open_files(pid))})", file=sys.stderr)
    for child in children(pid):
        describe(child, indent + "  ")


def age(pid: int) -> int:
    try:
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return int(uptime - started / os.sysconf("SC_CLK_TCK"))


def open_files(pid: int) -> list[str]:
    """Returns the working directory and the open files and directories of a process, which tell whose it is."""
    found = {}
    for link in (Path(f"/proc/{pid}/cwd"), *Path(f"/proc/{pid}/fd").glob("*")):
        with contextlib.suppress(OSError):
            found[os.readlink(link)] = True
    return [path for path in found if path.startswith("/") and not path.startswith("/dev/")]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(gone)"


if __name__ == "__main__":
    sys.exit(main())
