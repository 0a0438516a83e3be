"""The example blocks of a page, run as its reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# A line that prints, and says what.
_PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    """Returns the blocks of Python on a page."""
    found = _BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    assert found, f"{page} has no example"
    return found


def run_block(code: str, directory: Path, python: str | Path = sys.executable) -> None:
    """Runs a block in a process of its own; each line that it says it prints is printed, in order."""
    environment = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    (directory / "example.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [python, "example.py"], cwd=directory, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = iter(done.stdout.splitlines())
    for expected in _PRINTED.findall(code):
        assert expected in printed, f"{expected!r} is not printed:\n{done.stdout}{done.stderr}"
