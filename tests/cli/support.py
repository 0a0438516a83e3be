"""Runs the command line as users do: as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bounded import DEADLINE as DEADLINE

KERNELBOX = str(Path(sys.executable).parent / "kernelbox")


@dataclass(frozen=True)
class Done:
    """What a command did: its exit status and what it wrote."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The document on stdout, of which it must be the whole."""
        return json.loads(self.stdout)


def kernelbox(*words: str, stdin: str | bytes = "", **env: str) -> Done:
    """Runs a command; there is never a traceback."""
    done = subprocess.run(
        [KERNELBOX, *words],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, **env},
    )
    stdout, stderr = done.stdout.decode(), done.stderr.decode()
    assert not any(line.startswith("Traceback") for line in stderr.splitlines()), stderr
    return Done(done.returncode, stdout, stderr)


def succeed(*words: str, stdin: str | bytes = "", **env: str) -> Any:
    """Runs a command that must succeed and say nothing but its document; returns that."""
    done = kernelbox(*words, stdin=stdin, **env)
    assert done.status == 0, (done.stdout, done.stderr)
    return done.json


def fail(*words: str, status: int = 1, stdin: str | bytes = "", **env: str) -> str:
    """Runs a command that must fail by the rules; returns its sentence."""
    done = kernelbox(*words, stdin=stdin, **env)
    assert done.status == status, (done.stdout, done.stderr)
    error = done.json["error"]
    assert isinstance(error, str)
    assert done.stderr.splitlines()[-1] == f"kernelbox: {error.splitlines()[0]}"
    return error
