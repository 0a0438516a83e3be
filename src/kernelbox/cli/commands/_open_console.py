"""`console`: opens a kernel, and a terminal on it."""

from __future__ import annotations

import sys
from argparse import Namespace

from kernelbox.api import _sync
from kernelbox.base._errors import InvalidInput
from kernelbox.base._limits import parse_limits
from kernelbox.cli.console._console import Console
from kernelbox.cli.terminal._pretty import progress
from kernelbox.core._options import choose_sandbox


def run(options: Namespace) -> int:
    """Runs the command."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput.saying("the console needs a terminal on stdin and stdout; use `kernelbox exec` in scripts")
    sandbox = choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level)
    with progress(f"starting kernel {options.name!r}"):
        limits = parse_limits(options.limit)
        record = _sync.get_or_create(
            options.name, limits=limits, sandbox=sandbox, python=options.python, requirements=options.packages
        )
    Console(record).run()
    return 0
