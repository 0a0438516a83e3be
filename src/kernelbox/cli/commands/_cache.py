"""`cache`: lists the environments that kernelbox has made for requirements, and removes those that are not used."""

from __future__ import annotations

import time
from argparse import Namespace

from kernelbox.api import _sync
from kernelbox.base._config import KernelBoxConfig
from kernelbox.base._limits import show_amount
from kernelbox.cli.terminal._output import emit, fields_of
from kernelbox.cli.terminal._tables import ago, print_table
from kernelbox.host.pythons._virtual_environments import (
    CachedEnvironment,
    cache_directory,
    list_environments,
    remove_environment,
)


def run(options: Namespace) -> int:
    """Runs the command."""
    folder = cache_directory(KernelBoxConfig.from_env().cache)
    found = list_environments(folder)
    if options.clean:
        used = [record.python for record in _sync.list_kernels(all_homes=True) if record.alive]
        unused = [each for each in found if not any(python.startswith(f"{each.path}/") for python in used)]
        found = [each for each in unused if remove_environment(each)]
    if options.pretty:
        _print(found, folder, removed=options.clean)
    else:
        emit({"removed" if options.clean else "environments": list(map(fields_of, found))})
    return 0


def _print(found: list[CachedEnvironment], folder: str, *, removed: bool) -> None:
    if not found:
        print(f"there was nothing to remove in {folder}" if removed else f"there are no environments in {folder}")
        return
    head = ("PYTHON", "PACKAGES", "SIZE", "LAST USED", "DIRECTORY")
    rows = []
    for each in found:
        used = f"{ago(time.time() - each.last_used)} ago" if each.complete else "never finished"
        size = show_amount("memory", each.size, like=1000)
        rows.append((each.python_version or "-", " ".join(each.requirements) or "-", size, used, each.path))
    print_table(head, rows)
