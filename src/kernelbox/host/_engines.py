"""The engines that are installed, by name and by kernel type."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.base._config import EngineName
    from kernelbox.host.engines._local import Engine

ENGINES: tuple[EngineName, ...] = ("kernelbox", "jupyter")


def engine_named(name: EngineName) -> Engine:
    """Returns an engine; the code for Jupyter kernels is loaded when it is first used."""
    if name == "jupyter":
        from kernelbox.host.engines.jupyter._jupyter_engine import JupyterEngine

        return JupyterEngine()
    from kernelbox.host.engines.own._own_engine import OwnEngine

    return OwnEngine()


def engine_for(kernel_type: str, configured: EngineName) -> Engine:
    """Returns the engine of a kernel type. KERNELBOX_ENGINE configures the one of `python3`."""
    return engine_named(configured if kernel_type == "python3" else "jupyter")
