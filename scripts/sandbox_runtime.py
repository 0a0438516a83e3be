#!/usr/bin/env python3
"""Installs srt (sandbox-runtime) for tests and benchmarks, below `.cache/srt` of the checkout; prints where it is."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "srt"
VERSION = "0.0.78"


def install() -> Path:
    """Returns the directory that the program is in; installs it if it is missing. One process does it, others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = CACHE / f"installed-{VERSION}"
        if not done.exists():
            npm = shutil.which("npm")
            if npm is None:
                raise FileNotFoundError("npm is not installed; srt comes from it")
            package = f"@anthropic-ai/sandbox-runtime@{VERSION}"
            command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(CACHE), package]
            subprocess.run(command, check=True, stdout=sys.stderr)
            done.touch()
    return CACHE / "node_modules" / ".bin"


if __name__ == "__main__":
    print(install())
