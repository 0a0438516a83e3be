"""What commands print and return: JSON for programs, sentences for people, and exit statuses."""

from __future__ import annotations

import contextlib
import json
import os
import sys

from kernelbox.base._owning import fill_standard_descriptors
from kernelbox.base._text import escape

# Exit statuses; docs/cli.md explains them.
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def emit(data: object, *, indent: int | None = 2) -> None:
    """Prints a document at once; without an indent, as one line."""
    sys.stdout.write(json.dumps(data, indent=indent, sort_keys=True) + "\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    """Prints a sentence for people to stderr."""
    tell(f"kernelbox: {escape(sentence)}\n")


def tell(text: str) -> None:
    """Writes to stderr, if that is possible."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


_STDIN, _STDOUT, _STDERR = range(3)


def fill_closed_streams() -> None:
    """Gives streams that were closed at the start (`<&-`, `>&-`) a descriptor. Text for such a stderr is lost."""
    fill_standard_descriptors()
    sys.stdin = sys.stdin or os.fdopen(_STDIN, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w", closefd=False)
