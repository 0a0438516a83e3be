"""How a kernel's process is ended: asked to, killed, and its keeper waited for, which ends what it leaves behind."""

from __future__ import annotations

import os
import signal

from kernelbox.host import _death

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host._process import Process

# A kernel asked to end runs its exit functions in this time; then it is killed.
TERMINATE_PATIENCE = 0.5
_KILL_PATIENCE = 5.0


def end_process(directory: str, process: Process, reason: str, *, engine: str) -> None:
    """terminate → kill → wait for the keeper to have cleaned up after it."""
    if not os.path.isdir(directory):
        return
    if not process.alive:
        _death.wait_for_note(directory, process)  # its keeper may still clean up; the pid is not ours to touch
        process.close()
        return
    family = process.descendants()
    _death.announce(directory, process, reason)
    if engine == "jupyter":
        from kernelbox.host.jupyter._launch import ask_to_shut_down

        ask_to_shut_down(directory, process, TERMINATE_PATIENCE)
    if process.signal(signal.SIGTERM) and not process.wait(TERMINATE_PATIENCE):
        process.signal(signal.SIGKILL)
        process.wait(_KILL_PATIENCE)
    if _death.wait_for_note(directory, process) is None:  # its keeper is gone
        for relative in family:
            relative.signal(signal.SIGKILL)
        process.kill_session()
    process.close()
