"""Every example runs as it stands, and prints what its comments say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_prints_what_its_comments_say(path: Path, home: Path, tmp_path: Path) -> None:
    env = {**os.environ, "KERNELBOX_HOME": str(home)}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path, env=env, check=False)

    assert done.returncode == 0, done.stderr
    for promised in re.findall(r"^ *print\(.*\)  # ([^:\n]+)", path.read_text(), re.MULTILINE):
        if not promised.startswith("the "):
            assert promised.strip() in done.stdout


def test_the_readme_shows_the_quickstart_example_word_for_word() -> None:
    example = (ROOT / "examples" / "quickstart.py").read_text().split("\n", 2)[2]

    assert example.strip() in (ROOT / "README.md").read_text()
