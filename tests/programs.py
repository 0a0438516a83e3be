"""Programs that tests run as users do: as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.bounded import DEADLINE as DEADLINE

# For programs whose first argument is a directory: `code` is a cell that has begun when it has written something, and
# that ends when `go` is a file.
WAITING_CELL = """
import sys
go = sys.argv[1] + "/go"
code = f'''
import os, time
x = 42
print("begun", flush=True)
while not os.path.exists({go!r}): time.sleep(0.01)
print("ended")
'''
"""


def run_program(script: str, directory: Path | str = "") -> str:
    """Runs a program that must succeed and say nothing on stderr; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(directory)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
