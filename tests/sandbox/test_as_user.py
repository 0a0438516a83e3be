"""Tests of kernels in srt, run as an ordinary user: for the superuser srt is no sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from scripts.sandbox_runtime import install
from tests.support.homes import outside_of_tmp
from tests.support.sandbox import LEVEL, needs_linux

pytestmark = [
    needs_linux,
    pytest.mark.slow,
    pytest.mark.timeout(1000),
    pytest.mark.skipif(LEVEL != "native", reason="it is what runs here"),
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# An ordinary user, whom no database need know.
USER = 61234

# Seconds. Far beyond what the tests of one file take.
DEADLINE = 900.0


@pytest.mark.parametrize(
    "file", ["test_srt.py", "test_inside.py", "test_life.py", "test_limited.py", "test_faces_life.py"]
)
def test_kernels_in_srt_pass_the_tests_of_this_file_as_an_ordinary_user(file: str) -> None:
    base = Path(tempfile.mkdtemp(prefix="kb-", dir=outside_of_tmp()))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)]
    command += [f"--basetemp={base / 'tests'}", "--rootdir", str(ROOT)]
    try:
        for name in ("mounted", "user"):
            (base / name).mkdir()
        if os.getuid() == 0:
            for path in (base, base / "user"):
                os.chown(path, USER, USER)
            command = [sys.executable, str(HERE / "as_user.py"), str(USER), str(base), *command]
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KERNELBOX_"))},
            "HOME": str(base / "user"),
            "PATH": os.pathsep.join((str(install()), str(ROOT / ".bootstrap" / "bin"), os.environ["PATH"])),
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_SANDBOX_LEVEL": "srt",
            "KERNELBOX_TEMPLATE_IDLE_TIMEOUT": "2",
        }
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
        assert " passed" in done.stdout
    finally:
        shutil.rmtree(base)
