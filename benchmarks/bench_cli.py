"""The command line: whole processes, against the start of the interpreter that runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

from benchmarks._measure import Row, interleaved, percentile, show

_KERNELBOX = os.path.join(os.path.dirname(sys.executable), "kernelbox")


def rows() -> Iterator[Row]:
    """Yields how long whole commands take."""
    with tempfile.TemporaryDirectory() as bytecode:
        # Bytecode as an installation has it, whatever this checkout and its environment have.
        env = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        env.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(*command: str) -> None:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)

        commands = {
            "pass": (sys.executable, "-I", "-c", "pass"),
            "exec": (_KERNELBOX, "exec", "--name", "cli", "1+1"),
            "help": (_KERNELBOX, "--help"),
            "status": (_KERNELBOX, "status", "--name", "cli"),
        }
        for command in commands.values():
            if command[1] != "status":
                run(*command)
        actions = {name: partial(run, *command) for name, command in commands.items()}
        taken = interleaved({**actions}, rounds=60, batch=1)
    reference = taken["pass"]
    for name, what, factor in (
        ("exec", '`kernelbox exec --name k "1+1"`, live kernel', 2.5),
        ("help", "`kernelbox --help`", 3.0),
        ("status", "`kernelbox status --name k`", None),
    ):
        ratio = percentile(taken[name], 50) / percentile(reference, 50)
        yield Row(
            what,
            show(taken[name]),
            f"`python -I -c pass` {show(reference)}",
            f"{ratio:.2f} ×",
            f"≤ {factor:g} ×" if factor else "",
            ratio <= factor if factor else None,
        )
