"""What commands print and return: JSON for programs, sentences for people, and exit statuses."""

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
    """Prints a sentence for people to stderr."""
    tell(f"kernelbox: {escape(sentence)}\n")


def tell(text: str) -> None:
    """Writes to stderr, if that is possible."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
