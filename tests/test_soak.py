"""The soak: a few seconds of it hold, and it notices what it is there to notice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.soak import _cells
from benchmarks.soak._ledger import Ledger

ROOT = Path(__file__).parent.parent

TOLD = {"kind": "told", "name": "own-1-a", "own": True, "pid": 41, "cause": "killed by SIGKILL"}


@pytest.mark.slow
def test_a_short_soak_breaks_no_promise_and_leaves_nothing() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.05", "--processes", "2", "--kills", "120"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed "), done.stdout
    assert "0 broken invariants" in done.stdout


@pytest.mark.slow
def test_a_short_soak_of_time_travel_finds_every_value_and_leaves_nothing() -> None:
    command = [sys.executable, "-m", "benchmarks.soak.time_travel", "--operations", "40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken invariants" in done.stdout


@pytest.mark.parametrize("make", [_cells.counted, _cells.flood])
def test_a_cell_of_the_soak_knows_its_output_from_any_other(make: object) -> None:
    assert callable(make)
    cell, other = (make(1, random.Random(seed)) for seed in (1, 2))
    first = f"{cell.token} life 41 7\n"
    whole = first + cell.rest
    assert cell.read(whole) == (_cells.Sign("life", 41, 7), "")
    assert cell.is_complete(whole)
    assert not cell.is_complete(whole[:-1])
    assert cell.read(whole[:-1])[1] == ""  # it was stopped before its end
    assert cell.read(first + other.rest)[1] != ""
    assert cell.read(f"{other.token} life 41 7\n")[1] != ""
    assert cell.read(first + cell.rest[1:])[1] != ""
    assert cell.read(whole + "x")[1] != ""


def test_a_death_that_nobody_caused_is_a_broken_promise() -> None:
    ledger = Ledger()
    ledger.kill("kernel killed", 41)
    ledger.take(1, TOLD)
    assert ledger.broken == []
    ledger.take(1, {**TOLD, "pid": 42})
    assert len(ledger.broken) == 1


def test_a_kernel_that_was_replaced_unheard_is_a_broken_promise() -> None:
    ledger = Ledger()
    ledger.take(1, {"kind": "life", "name": "shared-0", "life": "a"})
    ledger.take(2, {"kind": "life", "name": "shared-0", "life": "a"})
    ledger.take(1, {"kind": "told", "name": "shared-0", "own": False, "pid": 0, "cause": "killed"})
    ledger.take(1, {"kind": "life", "name": "shared-0", "life": "b"})
    ledger.compare_lives()
    assert ledger.broken == []
    ledger.take(2, {"kind": "life", "name": "shared-0", "life": "c"})
    ledger.compare_lives()
    assert len(ledger.broken) == 1


def test_a_start_that_fails_for_no_reason_is_a_broken_promise() -> None:
    ledger = Ledger()
    failure = {"kind": "not started", "name": "own-1-a", "cause": "no answer"}
    ledger.kill("template killed", 41)
    ledger.take(1, failure)
    assert ledger.broken == []
    other = Ledger()
    other.take(1, failure)
    assert len(other.broken) == 1
