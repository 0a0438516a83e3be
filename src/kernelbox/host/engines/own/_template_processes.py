"""The templates of a runtime directory on the host's side: listing them, finding their processes, ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import time

from kernelbox.base._errors import StoreFailed
from kernelbox.host.files._lock import locked
from kernelbox.host.files._sockets import dial, peer_of
from kernelbox.host.process._process import Process, children_of, is_maker, is_spare, read_start_time
from kernelbox.wire._layout import TEMPLATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.files._place import Place

# A template without kernels ends when it sees that its socket is gone, unless it is importing or hangs.
_LEAVE_PATIENCE = 5.0


def list_templates(runtime: Place) -> list[str]:
    return sorted(name for name in runtime.listdir() if name.startswith(TEMPLATE) and _is_socket(runtime, name))


def is_answering(runtime: Place, name: str) -> bool:
    """Tells whether a template listens at a socket."""
    with contextlib.suppress(OSError), dial(runtime, name):
        return True
    return False


def process_behind(client: socket.socket, name: str) -> Process | None:
    """Returns the process of the template at the other end; None if the system does not tell."""
    peer = peer_of(client)
    if peer is None:
        return None
    pid, _ = peer
    try:
        start_time = read_start_time(pid)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().split(b"\0")
    except OSError:
        return None
    # Until the template runs, the system names the opener, which has bound the socket.
    return Process(pid, start_time) if start_time is not None and os.fsencode(name) in arguments else None


def dismiss_templates(runtime: Place, secret: bytes) -> None:
    """Ends the templates without kernels, and removes files that templates have left behind."""
    for name in list_templates(runtime):
        with contextlib.suppress(OSError), locked(runtime, name + ".lock", secret):
            _dismiss(runtime, name)
            wait_for_srt(runtime, name)
    for name in runtime.listdir():
        if name.startswith(TEMPLATE) and name.endswith((".log", ".lock")):
            with contextlib.suppress(OSError):
                runtime.remove(name)


def _dismiss(runtime: Place, name: str) -> None:
    """Removes a template's socket, wakes the template up to notice that, and waits for it to end."""
    try:
        nudge, watch = dial(runtime, name), dial(runtime, name)
    except (ConnectionRefusedError, StoreFailed):
        runtime.remove(name)  # no process listens there that could be asked to end
        return
    with nudge, watch:
        process = process_behind(watch, name)
        runtime.remove(name)
        if process is not None:
            process.signal(signal.SIGCONT)  # it may have been stopped
        nudge.close()
        watch.settimeout(_LEAVE_PATIENCE)
        try:
            watch.recv(1)  # the connection ends with the process
        except ConnectionResetError:
            pass  # it ended before it accepted the connection
        except TimeoutError:
            if process is not None and not _has_kernels(process):
                process.signal(signal.SIGKILL)
                process.wait(_LEAVE_PATIENCE)
        if process is not None:
            process.close()


def wait_for_srt(runtime: Place, name: str) -> None:
    """Waits until srt and its parent have ended, after the template in it. They hold a lock on its log until then."""
    fd = runtime.open_for_reading(name + ".log")
    try:
        wait_for_lock(fd)
    finally:
        os.close(fd)


def wait_for_lock(log: int) -> None:
    """Locks the log of a template in srt when the previous srt has released it, or gives up after a while."""
    import fcntl

    deadline = time.monotonic() + _LEAVE_PATIENCE
    while time.monotonic() < deadline:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.01)


def _has_kernels(process: Process) -> bool:
    """Tells whether a template has live kernels, which others have opened meanwhile."""
    # The first child with the maker's name is the maker. A cell can give its kernel that name, but not an older child.
    maker = next(filter(is_maker, children_of(process.pid)), 0)
    return any(
        read_start_time(pid) is not None and pid != maker and not is_spare(pid) for pid in children_of(process.pid)
    )


def _is_socket(runtime: Place, name: str) -> bool:
    try:
        return stat.S_ISSOCK(runtime.stat(name).st_mode)
    except OSError:
        return False
