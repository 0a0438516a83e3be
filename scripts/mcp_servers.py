#!/usr/bin/env python3
"""Installs MCP servers and clients that nobody here wrote, each in an environment of its own, for tests.

They go below `.cache/mcp-servers` of the checkout and stay there. Prints where each program is, as JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mcp-servers"

FROM_PYPI = ("mcp-server-time", "mcp-server-git", "mcp-server-fetch")
FROM_NPM = {
    "mcp-server-everything": "@modelcontextprotocol/server-everything",
    "mcp-server-filesystem": "@modelcontextprotocol/server-filesystem",
    "mcp-server-memory": "@modelcontextprotocol/server-memory",
    "mcp-inspector": "@modelcontextprotocol/inspector@2.12.0",
    "conformance": "@modelcontextprotocol/conformance@0.2.0-alpha.12",  # the first that knows 2026-07-28
}

# The inspector needs this Node; where there is an older one, npm brings it.
NODE = (22, 19)


def main() -> None:
    """Installs what is missing."""
    json.dump({name: str(install(name)) for name in (*FROM_PYPI, *FROM_NPM)}, sys.stdout, indent=2)
    print()


def install(name: str) -> Path:
    """Returns a program, which is installed if it is missing; one process does it, others wait.

    Those from npm find the Node that they need beside them, if the directory that they are in is on PATH.
    """
    place = CACHE / name
    place.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / "installed"
        if not done.exists():
            (_install_from_npm if name in FROM_NPM else _install_from_pypi)(name, place)
            done.touch()
    return place / "node_modules/.bin" / name if name in FROM_NPM else place / "venv/bin" / name


def _install_from_pypi(name: str, place: Path) -> None:
    private = ROOT / ".bootstrap" / "bin" / "uv"
    uv = shutil.which("uv") or str(private)
    python = place / "venv" / "bin" / "python"
    _run([uv, "venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, str(place / "venv")])
    _run([uv, "pip", "install", "--quiet", "--python", str(python), name])


def _install_from_npm(name: str, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed; what comes from npm needs it")
    packages = [FROM_NPM[name], *([] if _has_node() else [_node_package()])]
    _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), *packages])


def _has_node() -> bool:
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, said.strip().lstrip("v").split(".")[:2])) >= NODE


def _node_package() -> str:
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"node-{sys.platform}-{machine}@{NODE[0]}"


def _run(command: list[str]) -> None:
    # uv brings certificates of its own; a network with a private authority is known only to the system.
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "UV_SYSTEM_CERTS": "1"})


if __name__ == "__main__":
    main()
