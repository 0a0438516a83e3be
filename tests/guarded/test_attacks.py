"""No attack has a program started past the approval, as the superuser or as an ordinary user, sandboxed or not."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.guarded.attacks import ATTACKS
from tests.support.homes import outside_of_tmp

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="guarded kernels need Linux"),
    pytest.mark.slow,
    pytest.mark.timeout(1000),
]

HERE = Path(__file__).resolve().parent

# Seconds. Far beyond what all attacks take together.
DEADLINE = 900.0

# An ordinary user, whom no database need know.
USER = 61235

users = pytest.mark.parametrize("uid", [0, USER] if os.getuid() == 0 else [os.getuid()])


@functools.cache
def results(uid: int) -> dict[str, dict[str, bool]]:
    """Runs all attacks as a user; returns what came of each."""
    base = Path(tempfile.mkdtemp(prefix="kernelbox-", dir=outside_of_tmp()))
    try:
        base.chmod(0o755)
        for name in ("mounted", "proc"):
            (base / name).mkdir()
        stage = [sys.executable, str(HERE / "stage.py"), str(base)]
        if os.getuid() == 0:
            os.chown(base, uid, uid)
            as_user = HERE.parent / "sandbox" / "as_user.py"
            stage = [sys.executable, str(as_user), str(uid), str(base), *stage]
        env = {**os.environ, "HOME": str(base), "PYTHONPATH": str(HERE.parents[1] / "src")}
        done = subprocess.run(stage, env=env, cwd=base, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, dict[str, bool]] = json.loads(done.stdout)
        return told
    finally:
        shutil.rmtree(base)


@users
@pytest.mark.parametrize("level", ["guarded", "sandboxed"])
def test_no_attack_has_a_program_started(level: str, uid: int) -> None:
    assert [name for name, told in results(uid).items() if told[level]] == []


@users
@pytest.mark.parametrize("level", ["guarded", "sandboxed"])
def test_a_kernel_and_its_runner_go_on_after_every_attack(level: str, uid: int) -> None:
    assert [name for name, told in results(uid).items() if not told[f"{level} usable"]] == []


@users
def test_attacks_that_are_said_to_prove_something_get_through_without_the_guard(uid: int) -> None:
    failed = [name for name, told in results(uid).items() if not told.get("none", True)]
    assert failed == []


def test_the_attacks_have_names_of_their_own() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 40
