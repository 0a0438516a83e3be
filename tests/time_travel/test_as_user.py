"""Copies of an ordinary user's kernels: run as the superuser, the test becomes one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.command_line import DEADLINE

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534

PROGRAM = """
import os, sys
os.environ.update(KERNELBOX_HOME=sys.argv[1] + "/home", KERNELBOX_KEY_FILE=sys.argv[1] + "/key")
from kernelbox import *

def value(kernel, code="x"):
    result = execute(kernel, code, timeout=90)
    assert result.ok, result.text
    return result.return_value

def travel(kernel, death):
    value(kernel, "x = 1")
    checkpoint(kernel)
    value(kernel, "x = 2")
    rollback(kernel)
    told = [value(kernel)]
    value(kernel, "x = 3")
    result = execute(kernel, death, timeout=90)
    return [*told, result.state, result.restored_from, value(kernel), checkpoints(kernel)[-1].private_bytes > 0]

try:
    print(os.getuid())
    plain = create("plain")
    print(travel(plain, "import os; os._exit(1)"))
    one, two = branch(plain, names=["one", "two"])
    value(one, "x = 4")
    promote(one)
    print(value(plain), value(two))
    print(travel(create("sandboxed", sandbox=True), "import os; os.kill(os.getpid(), 9)"))
    limited = create("limited", limits={"memory": "150MB"})
    print(travel(limited, "b = [bytearray(8_000_000) for _ in range(60)]; import time; time.sleep(100)"))
finally:
    wipe()
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """Makes a directory of the user's, with an empty one in it, in a place that every user can enter."""
    path = Path(tempfile.mkdtemp(prefix="kb-", dir="/var/lib"))
    try:
        path.chmod(0o755)
        (path / "mounted").mkdir()
        os.chown(path, NOBODY, NOBODY)
        yield path
    finally:
        shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become another user")
def test_a_users_kernels_are_branched_rolled_back_and_restored_also_in_a_sandbox_and_within_limits(base: Path) -> None:
    (work := base / "work").mkdir()
    os.chown(work, NOBODY, NOBODY)
    become = [sys.executable, str(ROOT / "tests" / "sandbox" / "as_user.py"), str(NOBODY), str(base)]
    done = subprocess.run(
        [*become, sys.executable, "-c", PROGRAM, str(base)],
        env={**os.environ, "HOME": str(base), "PYTHONPATH": str(ROOT / "src")},
        cwd=work,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    came_back = "['1', 'rolled back', 1, '1', True]"
    assert done.stdout.splitlines() == [str(NOBODY), came_back, "4 1", came_back, came_back]
