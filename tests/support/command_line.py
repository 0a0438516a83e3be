"""Programs that tests run as users do, as processes of their own: the command line, the console, scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pexpect
from tests.support.bounded import DEADLINE as DEADLINE

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


def on_screen(*words: str, width: int = 120, **env: str) -> tuple[int, str]:
    """Runs a command on a terminal of its own; returns its status and what the terminal got."""
    settings = {**os.environ, "TERM": "xterm", **env}
    child = pexpect.spawn(
        KERNELBOX, list(words), env=settings, encoding="utf-8", timeout=DEADLINE, dimensions=(40, width)
    )
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus or 0), str(child.before).replace("\r\n", "\n")


CTRL_C, CTRL_D, TAB = "\x03", "\x04", "\t"


class Terminal:
    """A console in a terminal of its own, or IPython in one."""

    def __init__(self, *words: str, program: list[str] | None = None, settings: dict[str, str] | None = None) -> None:
        env = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(settings or {})}
        command, *arguments = program or [KERNELBOX, "console", *words]
        self.child = pexpect.spawn(
            command, arguments, env=env, encoding="utf-8", timeout=DEADLINE, dimensions=(40, 120)
        )

    def wait_for_prompt(self, number: int) -> None:
        self.expect(rf"\[{number}\]: ")

    def expect(self, pattern: str) -> str:
        """Waits for text on the screen, colours and cursor movements aside; returns what came before it."""
        loose = "".join(f"{part}(?:\x1b\\[[0-9;?]*[a-zA-Z])*" for part in re.findall(r"\\.|\[[^\]]*\]|.", pattern))
        self.child.expect(loose)
        return str(self.child.before)

    def type(self, text: str) -> None:
        self.child.send(text)

    def enter(self, text: str = "") -> None:
        self.child.send(text + "\r")


# For programs whose first argument is a directory: `code` is a cell that has begun when it has written something, and
# that ends when `go` is a file.
WAITING_CELL = """
import sys
go = sys.argv[1] + "/go"
code = f'''
import os, time
x = 42
print("begun", flush=True)
while not os.path.exists({go!r}): time.sleep(0.01)
print("ended")
'''
"""


def run_program(script: str, directory: Path | str = "") -> str:
    """Runs a program that must succeed and say nothing on stderr; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(directory)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
