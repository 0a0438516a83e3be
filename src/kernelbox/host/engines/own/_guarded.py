"""Guarded kernels on the host's side: their filter, the check that it is in force, and their runner's key."""

from __future__ import annotations

import platform
import signal
import sys

from kernelbox.base._errors import StartFailed
from kernelbox.host.files._sockets import dial
from kernelbox.host.process._process import Process, added_filters, read_status
from kernelbox.sandbox._seccomp import ARCHITECTURES, build_filter
from kernelbox.wire._layout import RUNNER
from kernelbox.wire._questions import RUNNER_KEY_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.wire._messages import Spawned

# A runner answers within a millisecond, unless a cell has stopped it.
_KEY_PATIENCE = 2.0


def guard_filter() -> bytes:
    """Returns the filter of a guarded kernel; raises StartFailed if this system has none."""
    machine = platform.machine()
    if sys.platform != "linux":
        raise StartFailed(
            f"require_shell_escape needs Linux, and this is {sys.platform}: other systems cannot stop C code in a cell "
            "from starting programs; run kernelbox in a virtual machine or container with Linux, or leave it out"
        )
    if machine != "x86_64" and machine != "aarch64":
        raise StartFailed(
            f"require_shell_escape needs a machine of {' or '.join(ARCHITECTURES)}, and this one is {machine}; leave "
            "it out"
        )
    return build_filter(machine, unix_sockets=False, programs=False)


def require_guarded(spawned: Spawned, *, sandboxed: bool) -> None:
    """Kills a process that is not filtered according to the system, and raises StartFailed; a sandbox adds a filter."""
    if not _is_filtered(spawned.pid, 2 if sandboxed else 1):
        Process(spawned.pid, spawned.start_time).signal(signal.SIGKILL)
        raise StartFailed("the kernel was killed, because its system calls are not filtered; please report this")


def fetch_key(directory: KernelDirectory) -> bytes:
    """Asks the runner of a kernel for its key; b"" if it does not answer, and then no command can be approved.

    The answer begins with the kernel's id. With another runner's key, an approved command would run in its kernel.
    """
    key = b""
    try:
        with directory.open() as place, dial(place, RUNNER) as runner:
            runner.settimeout(_KEY_PATIENCE)
            while piece := runner.recv(1024):
                key += piece
    except OSError:
        return b""
    told = directory.path.rpartition("/")[2].encode()
    return key.removeprefix(told) if key.startswith(told) and len(key) == len(told) + RUNNER_KEY_SIZE else b""


def _is_filtered(pid: int, filters: int) -> bool:
    """Tells whether a process has this many filters of its own, and cannot drop them (PR_SET_NO_NEW_PRIVS)."""
    try:
        status = read_status(pid)
        return (status.get("Seccomp"), status.get("NoNewPrivs")) == ("2", "1") and added_filters(status) >= filters
    except OSError:
        return False
