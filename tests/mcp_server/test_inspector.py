"""The official inspector, a client that nobody here wrote, against our server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .support import DEADLINE, command

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".cache" / "inspector"
PACKAGE = "@modelcontextprotocol/inspector@2.12.0"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def inspector() -> Path:
    """Installs the inspector, once for a checkout."""
    program = FOLDER / "node_modules" / ".bin" / "mcp-inspector"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not installed")
        FOLDER.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", PACKAGE]
        installed = subprocess.run(words, capture_output=True, text=True, check=False)
        if installed.returncode:
            pytest.skip(f"the inspector cannot be installed here: {installed.stderr[-500:]}")
    return program


@pytest.mark.timeout(300)
def test_the_inspector_lists_and_calls_the_tools_over_stdio(inspector: Path, tmp_path: Path, own_home: Path) -> None:
    listed = inspect(inspector, *command(tmp_path), "--method", "tools/list")
    assert "execute_ipython_cell" in [tool["name"] for tool in listed["tools"]]
    words = ["--method", "tools/call", "--tool-name", "execute_ipython_cell", "--tool-arg", "code=6 * 7"]
    called = inspect(inspector, *command(tmp_path), *words)
    assert called["content"] == [{"type": "text", "text": "42"}]


@pytest.mark.timeout(300)
def test_the_inspector_reads_the_templates_of_resources(inspector: Path, tmp_path: Path, own_home: Path) -> None:
    listed = inspect(inspector, *command(tmp_path), "--method", "resources/templates/list")
    addresses = [template["uriTemplate"] for template in listed["resourceTemplates"]]
    assert "kernelbox://outputs/{output_id}{?start,end}" in addresses


def inspect(inspector: Path, *words: str) -> Any:
    """Runs the inspector and returns the answer that it prints."""
    done = subprocess.run([inspector, "--cli", *words], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
