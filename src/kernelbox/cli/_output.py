"""What commands print: JSON for programs, by one function."""

from __future__ import annotations

import json
import sys

from kernelbox.base._text import escape


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
    print(f"kernelbox: {escape(sentence)}", file=sys.stderr, flush=True)
