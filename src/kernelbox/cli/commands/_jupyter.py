"""`jupyter`: installs or removes a kernelspec that lets Jupyter find kernels."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from kernelbox.base._extras import require
from kernelbox.cli.terminal._output import emit


def run(options: Namespace) -> int:
    """Installs or removes the kernelspec."""
    require("jupyter")
    from kernelbox.server.jupyter._kernelspec import install, remove

    prefix = sys.prefix if options.sys_prefix else options.prefix and os.path.abspath(options.prefix)
    if options.action == "remove":
        emit({"removed": remove(options.name, prefix=prefix, user=options.user)})
    else:
        emit({"installed": install(options.name, prefix=prefix, kernel=options.kernel), "name": options.name})
    return 0
