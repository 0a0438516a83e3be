"""The deputy of a template that runs in srt: it starts srt, waits outside for its end, and leaves nothing of it.

    deputy ─→ srt ─→ bwrap ─→ … ─→ template ─fork→ kernels

All that is in srt ends with it, the keeper of the kernels too: of what they died the deputy tells. An srt that is
killed leaves its relay to the proxy running, its sockets in the temporary directory, and in the working directory the
empty files that it has mounted something on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from typing import Any, NoReturn

from kernelbox.guest._descendants import children, kill_descendants
from kernelbox.guest._keeper import kill, write_note
from kernelbox.guest._subreaper import become_subreaper, end_with_parent
from kernelbox.wire._layout import DEATH, KEPT, is_kernel_id

# Directories of deputies in the temporary directory: srt keeps there what it needs, and sockets need short paths.
_TEMPORARY, _PREFIX = "/tmp", "kernelbox-srt-"


def attend(listener: int, runtime: int, plan: int) -> NoReturn:
    """Runs srt as a plan says, with the template's socket as its input, and cleans up after it."""
    with open(plan) as file:
        wanted: dict[str, Any] = json.load(file)
    os.set_inheritable(runtime, False)
    fcntl.flock(
        2, fcntl.LOCK_EX
    )  # of the log, which srt and all in it have open too: hosts see when the last has ended
    become_subreaper()
    _remove_forsaken()
    place = tempfile.mkdtemp(prefix=_PREFIX, dir=_TEMPORARY)
    held = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX)
    srt = _start(wanted, listener, place)
    os.close(listener)
    reason = describe(_wait_for(srt))
    print(reason, flush=True)
    _tell(runtime, wanted["token"], f"{reason}, and with it all of its kernels")
    _end_children()
    for path in wanted["absent"]:
        _remove_ghost(path)
    shutil.rmtree(place, ignore_errors=True)
    os._exit(0)


def describe(code: int) -> str:
    """Says how srt ended."""
    if code >= 0:
        return f"srt ended with status {code}"
    return f"srt was killed by {signal.Signals(-code).name}"


def _start(wanted: dict[str, Any], listener: int, place: str) -> int:
    settings = os.path.join(place, "settings.json")
    with open(settings, "w") as file:
        json.dump(wanted["settings"], file)
    command = [*wanted["srt"], "--settings", settings, "--", sys.executable, *wanted["template"]]
    deputy = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            end_with_parent(deputy, signal.SIGTERM)  # upon which it leaves nothing
            for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(listener, 0)
            os.chdir(wanted["cwd"])
            os.execve(command[0], command, {**os.environ, **wanted["environment"], "TMPDIR": place})
        except OSError as exc:
            print(f"{command[0]} cannot be run: {exc}", flush=True)
        finally:
            os._exit(127)
    return pid


def _wait_for(srt: int) -> int:
    """Waits for srt, and for orphans of its that have ended meanwhile; returns its exit status."""
    while True:
        pid, status = os.wait()
        if pid == srt:
            return os.waitstatus_to_exitcode(status)


def _tell(runtime: int, token: str, reason: str) -> None:
    """Writes for each kernel that was alive in this srt of what it died."""
    for name in filter(is_kernel_id, os.listdir(runtime)):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=runtime)
            try:
                kept = _read(directory, KEPT)
                if kept["token"] == token and _read(directory, DEATH).get("start_time") != kept["start_time"]:
                    write_note(directory, {"start_time": kept["start_time"], "reason": reason, "at": time.time()})
            finally:
                os.close(directory)


def _read(directory: int, name: str) -> dict[str, Any]:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except FileNotFoundError:
        return {}
    with open(fd) as file:
        return dict(json.load(file))


def _end_children() -> None:
    while left := children():
        for pid in left:
            kill_descendants(pid)
            kill(pid)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _remove_ghost(path: str) -> None:
    """Removes what was not there before srt was started, if it looks like what bubblewrap mounts something on."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(path)  # fails if there is something in it
        elif stat.S_ISREG(found.st_mode) and found.st_size == 0 and not found.st_mode & 0o222:
            os.unlink(path)


def _remove_forsaken() -> None:
    """Removes the directories of deputies that were killed: no process has them locked."""
    for entry in os.scandir(_TEMPORARY):
        with contextlib.suppress(OSError):
            if not entry.name.startswith(_PREFIX) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(fd)
