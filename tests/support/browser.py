"""A browser, and the JupyterLab that it looks at."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = Path(__file__).parents[2] / ".cache" / "jupyterlab"
PACKAGES = ["jupyterlab==4.*", "ipywidgets==8.*", "playwright==1.*"]


def give_up(reason: str) -> NoReturn:
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="module")
def python() -> Path:
    """Installs JupyterLab and playwright, once for a checkout."""
    program = FOLDER / "bin" / "python"
    if not (FOLDER / "bin" / "jupyter-lab").exists():
        for words in ([sys.executable, "-m", "venv", str(FOLDER)], [str(program), "-m", "pip", "install", *PACKAGES]):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                give_up(f"JupyterLab cannot be installed here: {done.stderr[-500:]}")
    return program


@pytest.fixture(scope="module")
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    give_up("chromium is not installed; `make slow` installs it")
