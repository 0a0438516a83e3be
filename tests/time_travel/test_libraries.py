"""Real libraries, after real use: they compute the same in every copy of a kernel, or are refused by name.

PyTorch takes gigabytes on most machines, so it is not installed here. It is tested where it is there already: run
`python tests/time_travel/libraries.py torch` with an interpreter that has it and kernelbox.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.homes import new_home
from tests.test_installs import ROOT, uv

LIBRARIES = ("numpy", "scipy", "pandas", "matplotlib", "pyarrow", "sklearn")
REFUSED = ("polars", "duckdb")
PACKAGES = [*LIBRARIES[:-1], "scikit-learn", *REFUSED]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Makes an environment with kernelbox and the libraries; returns its interpreter."""
    place = tmp_path_factory.mktemp("libraries")
    uv("venv", "--quiet", "--python", sys.executable, str(place / "venv"))
    uv("pip", "install", "--quiet", "--python", str(place / "venv"), str(ROOT), *PACKAGES)
    yield place / "venv" / "bin" / "python"
    shutil.rmtree(place)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_libraries_compute_the_same_in_every_copy_of_a_kernel_or_are_refused(environment: Path, tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("libraries.py"))
    with new_home() as home:
        done = subprocess.run(
            [str(environment), program, *LIBRARIES, *REFUSED],
            env={**os.environ, "KERNELBOX_HOME": str(home)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} passed" for name in (*LIBRARIES, *REFUSED, "together")]
