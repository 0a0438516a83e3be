"""What commands print and return: JSON for programs, sentences for people, and exit statuses."""

from __future__ import annotations

import os
import sys

from kernelbox.base._light_stdlib import suppress
from kernelbox.base._text import escape
from kernelbox.base._unique_objects import fill_standard_descriptors
from kernelbox.wire._json import encode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

# Exit statuses; docs/cli.md explains them.
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def emit(data: object, *, indent: int | None = 2) -> None:
    """Prints a document at once; without an indent, as one line."""
    sys.stdout.write(lay_out(data, indent) + "\n")
    sys.stdout.flush()


def answer(options: Namespace, data: object, text: str) -> int:
    """Prints an answer, as text for people if they asked for it; returns the exit status of a success."""
    if not options.pretty:
        emit(data)
    elif text:
        print(escape(text, keep="\n\t"))
    return 0


def fields_of(value: Any) -> dict[str, object]:
    """Returns the fields of a value, for a document."""
    return {name: getattr(value, name) for name in value.__match_args__}


def lay_out(data: object, indent: int | None = 2) -> str:
    """Returns plain values as JSON with sorted keys, as `json.dumps` does, which takes longer to import than this."""
    if indent is None:
        return encode_json(data, ascii_only=True, separators=(": ", ", "), sort_keys=True)
    return _indented(data, "\n", " " * indent)


def _indented(value: object, margin: str, step: str) -> str:
    inner = margin + step
    if isinstance(value, dict) and value:
        lines = [f"{_quote_key(key)}: {_indented(value[key], inner, step)}" for key in sorted(value)]
        return f"{{{inner}{f',{inner}'.join(lines)}{margin}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{inner}{f',{inner}'.join([_indented(item, inner, step) for item in value])}{margin}]"
    return encode_json(value, ascii_only=True)


def _quote_key(key: object) -> str:
    return encode_json(key if isinstance(key, str) else encode_json(key), ascii_only=True)


def show_help(text: str) -> None:
    """Prints help at once. Its headings are bold on a terminal."""
    if sys.stdout.isatty():
        from kernelbox.base._environment import wants_color

        if wants_color():
            lines = text.split("\n")
            text = "\n".join(f"\x1b[1m{line}\x1b[0m" if _is_heading(line) else line for line in lines)
    print(text, end="", flush=True)


def _is_heading(line: str) -> bool:
    return line.endswith(":") and not line.startswith(" ")


def say(sentence: str) -> None:
    """Prints a sentence for people to stderr."""
    tell(f"kernelbox: {escape(sentence)}\n")


def tell(text: str) -> None:
    """Writes to stderr, if that is possible."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


_STDIN, _STDOUT, _STDERR = range(3)


def fill_closed_streams() -> None:
    """Gives streams that were closed at the start (`<&-`, `>&-`) a descriptor. Text for such a stderr is lost."""
    fill_standard_descriptors()
    sys.stdin = sys.stdin or os.fdopen(_STDIN, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w", closefd=False)
