"""Every benchmark works: a small part of each is run. And a cell takes a short way through the files."""

from __future__ import annotations

import re
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


@pytest.mark.slow
def test_a_cell_changes_the_file_few_times() -> None:
    command = [sys.executable, "scripts/trace_cell.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    by_record, by_name, in_the_kernel = map(int, re.findall(r"(\d+) switches of file", done.stdout))
    assert by_record < 45, done.stdout
    assert by_name < 60, done.stdout
    assert in_the_kernel < 75, done.stdout
