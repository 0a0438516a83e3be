"""`jupyter`: installs or removes the kernelspec that lets Jupyter find kernelbox kernels."""

from __future__ import annotations

import os
import sys

from kernelbox.cli.terminal._output import emit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def run(options: Namespace) -> int:
    """Runs the command."""
    from kernelbox.server.jupyter._kernelspec import install, remove

    prefix = sys.prefix if options.sys_prefix else options.prefix and os.path.abspath(options.prefix)
    if options.action == "remove":
        emit({"removed": remove(options.name, prefix=prefix, user=options.user)})
        return 0
    emit({"installed": install(options.name, prefix=prefix, kernel=options.kernel), "name": options.name})
    return 0
