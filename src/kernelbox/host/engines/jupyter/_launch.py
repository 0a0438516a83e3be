"""How a Jupyter kernel comes to be: spawned by our own launcher, so that it has a keeper like any other.

start → ready (it answers, and is heard) → in use; its keeper reaps it, notes how it ended and ends what it left.
"""

from __future__ import annotations

import contextlib
import signal

from kernelbox.base._errors import StartFailed
from kernelbox.host.engines._kernelspecs import find_spec
from kernelbox.host.engines._spawning import preparing, spawn_cold, tail
from kernelbox.host.engines.jupyter._activity import read_activity, write_activity
from kernelbox.host.engines.jupyter._client_queue import end_queue
from kernelbox.host.engines.jupyter._connection_file import create_link, entrances
from kernelbox.host.engines.jupyter._jupyter_connection import JupyterConnection
from kernelbox.host.process._process import Process
from kernelbox.host.store import _death_notes as _notes
from kernelbox.wire._layout import LOG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.host.engines._interface import Launch
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.wire._messages import Spawned

# Kernels of some languages compile before they answer; Jupyter's own default for a start is 60 s.
_READY_PATIENCE = 60.0

# After SIGKILL only the operating system is waited for.
_KILL_PATIENCE = 5.0


def launch_jupyter(launch: Launch) -> Spawned:
    """Starts a kernel of a kernelspec and waits until it answers; raises StartFailed and leaves no process."""
    directory, kernel_type = launch.directory, launch.record.kernel_type
    spec = find_spec(kernel_type)
    end_queue(directory)
    with create_link(directory, spec) as connection_file:
        environment = spec.environment(launch.environment)
        command = spec.command(connection_file)
        with preparing(launch, entrances(directory), argv=command, environment=environment) as request:
            spawned = spawn_cold(request, directory, environment)
        process = Process(spawned.pid, spawned.start_time)
        try:
            _wait_until_ready(directory, process, kernel_type, spec.transport)
        except BaseException:
            process.signal(signal.SIGKILL)
            process.wait(_KILL_PATIENCE)
            raise
        finally:
            process.close()
    write_activity(directory, "idle")
    return spawned


def ask_to_shut_down(directory: KernelDirectory, process: Process, patience: float) -> None:
    """Asks a kernel to end as Jupyter's servers do, and gives it time to; one that runs a cell is not asked.

    ipykernel would end the cell's children first, and the cell might be taken to have succeeded.
    """
    if read_activity(directory).busy:
        return
    with contextlib.suppress(OSError):
        connection = JupyterConnection(directory, Process(process.pid, process.start_time))
        try:
            connection.ask_to_shut_down()
            process.wait(patience)
        finally:
            connection.close()


def _wait_until_ready(directory: KernelDirectory, process: Process, kernel_type: str, transport: str) -> None:
    try:
        connection = JupyterConnection(directory, Process(process.pid, process.start_time))
    except ConnectionRefusedError:
        connection = None
    ready = connection is not None and connection.handshake(_READY_PATIENCE)
    if connection is not None:
        connection.close()
    if ready:
        return
    if process.alive:
        what = f"did not answer within {_READY_PATIENCE:g} s"
    else:
        what = f"ended while it started: {_notes.find_cause(directory, process)}"
    advice = ""
    if transport == "ipc":
        advice = (
            '\nIf this kernel cannot use Unix sockets, put "metadata": {"kernelbox": {"transport": "tcp"}} '
            "into its kernel.json."
        )
    with directory.open() as place:
        log = tail(place, LOG)
    raise StartFailed(f"the kernel of type {kernel_type!r} {what}; its log ends:\n{log}{advice}")
