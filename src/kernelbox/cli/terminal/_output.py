"""What commands print and return: JSON for programs, sentences for people beside it, and exit statuses."""

from __future__ import annotations

import contextlib
import json
import sys

from kernelbox.base._text import escape

# Exit statuses; docs/cli.md explains them.
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def emit(data: object) -> None:
    """Prints a document."""
    sys.stdout.write(json.dumps(data, indent=2, sort_keys=True) + "\n")
    sys.stdout.flush()


def emit_line(data: object) -> None:
    """Prints a document as one line, at once."""
    sys.stdout.write(json.dumps(data, sort_keys=True) + "\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    """Tells the person at the terminal something, beside the output."""
    tell(f"kernelbox: {escape(sentence)}\n")


def tell(text: str) -> None:
    """Writes to stderr, where that can be written to."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
