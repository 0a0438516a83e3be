"""Ctrl-C before a command has begun: while Python still imports what the command needs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.command_line import DEADLINE, KERNELBOX

# Python runs this at its start, if it is in its path: it presses Ctrl-C when a module is about to be imported.
PRESS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may have it ignored
class Finder:
    def find_spec(name, path=None, target=None):
        if name == os.environ["PRESS_AT"]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
"""

IMPORTS = {
    "kernelbox.cli._main": "list",
    "kernelbox.cli._command_table": "list",
    "kernelbox.wire._values": "version",
    "argparse": "list",
    "kernelbox.cli._parser": "list",
    "kernelbox.cli.commands._lifecycle": "list",
    "kernelbox.cli.commands._exec": "exec --name a 1",
    "kernelbox.host.store._store": "list",
    "kernelbox.cli.commands._mcp": "mcp",
    "kernelbox.cli.commands._doctor": "doctor",
}


@pytest.mark.parametrize("module", IMPORTS)
def test_ctrl_c_in_the_middle_of_an_import_leaves_no_traceback(home: Path, tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRESS)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [KERNELBOX, *IMPORTS[module].split()],
        capture_output=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "PRESS_AT": module},
    )
    assert done.returncode == 130
    assert done.stderr in (b"", b"kernelbox: interrupted\n")
