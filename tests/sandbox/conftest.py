"""A workspace, and a sandboxed kernel in it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.support.sandbox import LEVEL

from kernelbox import KernelRecord, get_or_create

_numbers = itertools.count(1)

# `test_as_user.py` runs it, in srt; for the superuser srt is no sandbox.
collect_ignore = [] if LEVEL == "srt" else ["test_srt.py"]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the directory that a kernel works in, and the test too."""
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def box(home: Path, workspace: Path) -> KernelRecord:
    """Opens a sandboxed kernel."""
    return get_or_create(f"box-{next(_numbers)}", sandbox=True, sandbox_level=LEVEL)
