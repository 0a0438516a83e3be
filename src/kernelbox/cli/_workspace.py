"""The directory that a server works in."""

from __future__ import annotations

import os

from kernelbox.base._errors import InvalidInput


def enter_workspace(directory: str) -> str:
    """Makes the workspace the current directory: kernels start there, and their home is there by default."""
    try:
        os.chdir(os.path.expanduser(directory))
        return os.getcwd()
    except OSError as exc:
        raise InvalidInput("the workspace", directory, f"use a directory that is there: {exc.strerror}") from exc
