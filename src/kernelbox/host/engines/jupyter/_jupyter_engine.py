"""The engine of Jupyter kernels. A keeper starts each one, like any other kernel.

start → ready (it answers and its publications arrive) → in use. The keeper reaps it, notes how it ended, and ends the
processes that it leaves behind.
"""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace

from kernelbox.base._errors import StartFailed
from kernelbox.base._extras import require
from kernelbox.host.engines._kernelspecs import find_spec
from kernelbox.host.engines._local import KILL_PATIENCE, TERMINATE_PATIENCE, Engine, identify
from kernelbox.host.engines._spawning import preparing, spawn_cold, tail
from kernelbox.host.engines.jupyter._client_queue import end_queue
from kernelbox.host.engines.jupyter._connection_file import create_link, entrances
from kernelbox.host.engines.jupyter._jupyter_connection import JupyterConnection
from kernelbox.host.process._process import Process
from kernelbox.host.store import _death_notes as _notes
from kernelbox.host.store._state_file import read_state, write_activity
from kernelbox.wire._layout import JUPYTER, LINK, LOG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.base._config import EngineName
    from kernelbox.host.engines._interface import Launch
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord

# Kernels of some languages compile before they answer; Jupyter's own default for a start is 60 s.
_READY_PATIENCE = 60.0

_TRANSPORT_ADVICE = (
    '\nIf this kernel cannot use Unix sockets, put "metadata": {"kernelbox": {"transport": "tcp"}} '
    "into its kernel.json."
)


class JupyterEngine(Engine):
    """Starts the command of a kernelspec under a keeper, and speaks Jupyter's protocol to it."""

    name: EngineName = "jupyter"
    connection_file = JUPYTER
    describes_itself = True

    def check(self, kernel_type: str) -> None:
        find_spec(kernel_type)

    def launch(self, launch: Launch) -> None:
        """Starts a kernel and waits until it answers; raises StartFailed and leaves no process."""
        directory, spec = launch.directory, find_spec(launch.record.kernel_type)
        end_queue(directory)
        with create_link(directory, spec) as connection_file:
            launch = replace(launch, environment=spec.environment(launch.environment))
            with preparing(launch, entrances(directory), argv=spec.command(connection_file)) as request:
                spawned = spawn_cold(request, launch)
            process = Process(spawned.pid, spawned.start_time)
            try:
                _wait_until_ready(directory, process, spec.name, spec.transport)
            except BaseException:
                process.signal(signal.SIGKILL)
                process.wait(KILL_PATIENCE)
                raise
            finally:
                process.close()
        write_activity(directory, "idle")
        identify(launch.record, spawned)

    def find_refusals(self, record: KernelRecord, *, branch: bool) -> list[str]:
        return [f"it runs in Jupyter's engine ({record.kernel_type}); only kernels of kernelbox's own can be copied"]

    def _connect(self, record: KernelRecord, directory: KernelDirectory, process: Process) -> JupyterConnection:
        require("jupyter")
        return JupyterConnection(directory, process)

    def _entrances(self, directory: KernelDirectory) -> list[str]:
        try:
            return entrances(directory)
        except OSError:
            return [LINK]  # it is gone, or damaged

    def _ask_to_end(self, directory: KernelDirectory, process: Process) -> None:
        """Asks a kernel to end as Jupyter's servers do, and gives it time, unless it runs a cell.

        ipykernel would end the cell's children first, and then the cell might look successful.
        """
        state = read_state(directory)
        if state is not None and state.activity == "busy":
            return
        with contextlib.suppress(OSError):
            connection = JupyterConnection(directory, Process(process.pid, process.start_time))
            try:
                connection.ask_to_shut_down()
                process.wait(TERMINATE_PATIENCE)
            finally:
                connection.close()


def _wait_until_ready(directory: KernelDirectory, process: Process, kernel_type: str, transport: str) -> None:
    with contextlib.suppress(ConnectionRefusedError):
        connection = JupyterConnection(directory, Process(process.pid, process.start_time))
        try:
            if connection.handshake(_READY_PATIENCE):
                return
        finally:
            connection.close()
    if process.alive:
        what = f"did not answer within {_READY_PATIENCE:g} s"
    else:
        what = f"ended while it started: {_notes.find_cause(directory, process)}"
    with directory.open() as place:
        log = tail(place, LOG)
    advice = _TRANSPORT_ADVICE if transport == "ipc" else ""
    raise StartFailed(f"the kernel of type {kernel_type!r} {what}; its log ends:\n{log}{advice}")
