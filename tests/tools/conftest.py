"""Fixtures of the tools' tests: a package of the plain server's, generated once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.tools import PLAIN, generate

from kernelbox import KernelBoxConfig
from kernelbox.tools._servers import Servers, read_parameters


@pytest.fixture(scope="session")
def generated(shared_home: Path, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generates the package of the plain server, for the shared home."""
    root = tmp_path_factory.mktemp("generated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(shared_home))
        generate(root, PLAIN)
    return root


@pytest.fixture
def project(home: Path, generated: Path, tmp_path: Path) -> Path:
    """Gives a directory of its own with the package of the plain server in it."""
    shutil.copytree(generated / "mcptools", tmp_path / "mcptools")
    Servers(KernelBoxConfig.from_env()).put("plain", read_parameters("plain", PLAIN), str(tmp_path / "mcptools"))
    return tmp_path
