#!/usr/bin/env python3
"""Runs tests with the lowest versions that pyproject.toml allows, in environments of their own.

    python scripts/lowest_versions.py [default | all]

First the default install, then all extras: an extra may need newer versions of what the default install has. One word
chooses one of them. uv chooses the lowest version of each package that kernelbox names (`--resolution lowest-direct`).
Needs `make bootstrap` before.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What the tests need beside kernelbox; in the newest versions that fit.
TOOLS = (
    *("pytest", "pytest-timeout", "pytest-randomly", "pytest-xdist", "hypothesis", "psutil", "pyyaml", "httpx2"),
    *("matplotlib", "pandas", "ipywidgets", "jinja2", "nbformat", "editables", "hatchling", "bash_kernel"),
)
# Each dependency is used by one of these: IPython and traitlets, comm, matplotlib-inline, Pillow, prompt_toolkit and
# Pygments, then the packages of the HTTP service.
DEFAULT_TESTS = (
    *("tests/engine/test_queries.py", "tests/engine/test_notebook.py", "tests/engine/test_front_end_magics.py"),
    *("tests/sandbox/test_inside.py::test_what_is_stored_lasts_from_cell_to_cell", "tests/wire/test_readable.py"),
    *("tests/cli/test_console.py", "tests/server/test_streams.py", "tests/server/test_documentation_pages.py"),
    "tests/server/test_looking.py",
)
# mcp, jupyter_client and ipykernel, opentelemetry.
ALL_TESTS = (
    *("tests/tools/test_calling.py", "tests/mcp_server/test_stdio.py", "tests/jupyter/test_lifecycle.py"),
    *("tests/frontends/test_routes.py", "tests/gateway/test_gateway.py", "tests/server/test_tracing.py"),
)


def main() -> int:
    uv = shutil.which("uv") or str(ROOT / ".bootstrap" / "bin" / "uv")
    with tempfile.TemporaryDirectory() as scratch:
        for part in sys.argv[1:] or ("default", "all"):
            environment, tests = Path(scratch, part), {"default": DEFAULT_TESTS, "all": ALL_TESTS}[part]
            python = build(uv, environment, ["--extra", "all"] if part == "all" else [])
            # A process for each processor; whole files stay together, as in `make test`.
            pytest = [python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
            pytest += ["--numprocesses=auto", "--dist=loadfile"]
            if subprocess.run([*pytest, *tests], cwd=ROOT, check=False).returncode:
                print(f"the tests above failed with these versions:\n{(environment / 'lowest.txt').read_text()}")
                return 1
    return 0


def build(uv: str, environment: Path, extras: list[str]) -> str:
    """Makes an environment with kernelbox and the lowest versions; returns its interpreter."""
    python, lowest = str(environment / "bin" / "python"), environment / "lowest.txt"
    run(uv, "venv", "--quiet", "--python", sys.executable, str(environment))
    version = ".".join(map(str, sys.version_info[:2]))
    options = ["--resolution", "lowest-direct", "--python-version", version, "--no-annotate", "--no-header", *extras]
    run(uv, "pip", "compile", "--quiet", *options, "pyproject.toml", "--output-file", str(lowest))
    print(lowest.read_text(), flush=True)
    into = ["--quiet", "--python", python]
    run(uv, "pip", "install", *into, "--constraints", str(lowest), "--requirements", str(lowest), *TOOLS)
    run(uv, "pip", "install", *into, "--no-deps", "--no-build-isolation", "--editable", ".")
    return python


def run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
