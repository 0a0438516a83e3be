"""The parent of tool servers and installers: whatever ends it, nothing that it started is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cells import wait_for_end

from kernelbox.tools import _supervisor


def test_a_program_is_ended_with_its_supervisor_also_when_that_is_told_to_end_at_once(tmp_path: Path) -> None:
    """The program itself tells it, as soon as it runs: the supervisor has just begun to watch it, or not yet."""
    for number in range(10):
        mark = tmp_path / str(number)
        script = f"echo $$ > {mark}; kill -TERM $PPID; exec sleep 1000"
        end, ours = os.pipe()
        command = [sys.executable, "-I", "-S", _supervisor.__file__, str(end), "/bin/sh", "-c", script]
        try:
            subprocess.run(command, pass_fds=(end,), check=True, timeout=100)
        finally:
            os.close(end)
            os.close(ours)
        wait_for_end(int(mark.read_text()))
