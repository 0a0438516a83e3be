"""The engine of Jupyter kernels."""

from __future__ import annotations

from kernelbox.host.engines._kernelspecs import find_spec
from kernelbox.host.engines._local import TERMINATE_PATIENCE, LocalEngine, identify
from kernelbox.host.engines.jupyter._connection_file import entrances
from kernelbox.host.engines.jupyter._jupyter_connection import JupyterConnection
from kernelbox.host.engines.jupyter._launch import ask_to_shut_down, launch_jupyter
from kernelbox.wire._layout import JUPYTER, LINK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.base._config import EngineName
    from kernelbox.host.engines._interface import Launch
    from kernelbox.host.process._process import Process
    from kernelbox.host.store._kernel_directory import KernelDirectory
    from kernelbox.host.store._record import KernelRecord


class JupyterEngine(LocalEngine):
    """Starts the command of a kernelspec under a keeper, and speaks Jupyter's protocol to it."""

    name: EngineName = "jupyter"
    connection_file = JUPYTER
    uses_template = False
    describes_itself = True

    def check(self, kernel_type: str) -> None:
        find_spec(kernel_type)

    def launch(self, launch: Launch) -> None:
        identify(launch.record, launch_jupyter(launch))

    def _connect(self, record: KernelRecord, directory: KernelDirectory, process: Process) -> JupyterConnection:
        return JupyterConnection(directory, process)

    def _entrances(self, directory: KernelDirectory) -> list[str]:
        try:
            return entrances(directory)
        except OSError:
            return [LINK]  # it is gone, or damaged

    def _ask_to_end(self, directory: KernelDirectory, process: Process) -> None:
        ask_to_shut_down(directory, process, TERMINATE_PATIENCE)
