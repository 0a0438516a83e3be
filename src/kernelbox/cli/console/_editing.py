"""`%edit`: a cell in the user's own editor, which runs on this side and not in the kernel."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile

from kernelbox.base._environment import host_variable
from kernelbox.cli.terminal._output import say


def edit(path: str, code: str) -> str | None:
    """Opens the editor on a file or, without a path, on the last cell; returns the text to run, None if it failed."""
    command = shlex.split(host_variable("VISUAL") or host_variable("EDITOR") or "vi")
    if path:
        return _edit_file(command, os.path.expanduser(shlex.split(path)[0]))
    with tempfile.TemporaryDirectory(prefix="kernelbox-") as directory:
        file = os.path.join(directory, "cell.py")
        with open(file, "w", encoding="utf-8") as out:
            out.write(code + "\n" if code else "")
        return _edit_file(command, file)


def _edit_file(command: list[str], file: str) -> str | None:
    try:
        status = subprocess.run([*command, file], check=False).returncode
        if status:
            say(f"%edit: the editor {command[0]!r} exited with status {status}; nothing was run")
            return None
        with open(file, encoding="utf-8") as edited:
            return edited.read()
    except (OSError, UnicodeDecodeError) as exc:
        say(f"%edit: {exc}; VISUAL or EDITOR names the editor")
        return None
