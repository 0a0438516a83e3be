"""Every benchmark works: a small part of each is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_small_part_of_a_benchmark_fills_its_table(name: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--scale", "0.001", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    head, rule, *rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert (head.count("|"), set(rule)) == (7, {"|", "-"})
    assert rows
    assert "Traceback" not in done.stderr  # ipykernel, to which it is compared, warns there
