"""The kernels of the environment's configuration, which the faces share, and a warning for calls that block a loop."""

from __future__ import annotations

import sys

from kernelbox.base._config import KernelBoxConfig
from kernelbox.core._kernels import Kernels
from kernelbox.shells._blocking_run import run

_kernels: dict[KernelBoxConfig, Kernels] = {}
_latest: Kernels | None = None
_warned = False


def kernels() -> Kernels:
    """Returns the kernels of the environment's configuration."""
    global _latest
    config = KernelBoxConfig.from_env()
    if _latest is None or _latest.config is not config:  # the same variables give the same object
        if config not in _kernels:
            _kernels[config] = Kernels(config, run)
        _latest = _kernels[config]
    return _latest


def kernels_of_all_homes() -> list[Kernels]:
    """Returns the kernels of every home of this user, those of the configured one first.

    A home whose seal does not fit is left out.
    """
    from kernelbox.host.files._known_homes import known_homes

    here = kernels()
    config = here.config
    found = [here]
    for path in known_homes(config.key_file):
        if path != config.home:
            fields = {name: getattr(config, name) for name in config.__match_args__}
            other = KernelBoxConfig(**fields | {"home": path, "registry_path": "", "runtime_dir": ""})
            found.append(_kernels.setdefault(other, Kernels(other, run)))
    return found


def warn_on_loop(call: str) -> None:
    """Warns once if an event loop runs in this thread: the call blocks it until it returns.

    A notebook gets no warning: its cells run on a loop and are expected to block.
    """
    global _warned
    asyncio = sys.modules.get("asyncio")
    if _warned or asyncio is None or asyncio._get_running_loop() is None:
        return
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        return
    import warnings

    _warned = True
    warnings.warn(
        f"{call} blocks the event loop that runs in this thread until it returns; use AsyncKernel there",
        RuntimeWarning,
        stacklevel=3,
    )
