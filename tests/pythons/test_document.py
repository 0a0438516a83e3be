"""Every program in docs/your-python.md runs, in a project with an environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "your-python.md").read_text()
BLOCKS = re.findall(
    r"```python\n(.*?)```", re.sub(r"<!-- not run.*?-->\n```.*?```", "", PAGE, flags=re.DOTALL), re.DOTALL
)


@pytest.fixture
def project(environment: Path, tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\nversion = '1'\n")
    (tmp_path / ".venv").symlink_to(environment)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=range(1, len(BLOCKS) + 1))
def test_a_program_of_the_page_runs(block: str, home: Path, project: Path) -> None:
    env = {**os.environ, "KERNELBOX_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, cwd=project, env=env, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_page_is_mostly_code() -> None:
    words = len(re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL).split())
    assert PAGE.count("```") / 2 >= 10 * words / 1000
