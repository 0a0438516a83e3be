"""The result of `exec` on a terminal: the fields that say something, on one line if they fit."""

from __future__ import annotations

import json
import re
import sys

from kernelbox.base._environment import wants_color
from kernelbox.cli.terminal._pretty import write
from kernelbox.cli.terminal._tables import width_of
from kernelbox.cli.terminal._terminal_text import for_terminal
from kernelbox.cli.terminal._traceback_colors import color_traceback
from kernelbox.wire._results import ExecutionResult

# Fields that are printed always, and those that are printed if their value is not the usual one.
_ALWAYS = ("status", "output", "return_value")
_USUAL: dict[str, object] = {
    "stderr": "",
    "images": [],
    "exit_code": None,
    "truncated": False,
    "state": "kept",
    "ending": "finished",
    "restored_from": None,
    "lost_executions": [],
}

# A name, a string, a number, or a word of JSON.
_TOKEN = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*"(?=:))|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>[-\d.eE+]+|true|false|null)'
)
_COLORS = {"name": "1;34", "text": "32", "word": "36"}


def choose_fields(result: ExecutionResult) -> dict[str, object]:
    """Returns the fields of a result that say something. Of an error, the traceback is left out."""
    shown: dict[str, object] = {name: getattr(result, name) for name in _ALWAYS}
    shown |= {name: value for name, usual in _USUAL.items() if (value := getattr(result, name)) != usual}
    if result.error is not None:
        shown["error"] = {"ename": result.error.ename, "evalue": result.error.evalue}
    return shown


def show_short(result: ExecutionResult) -> None:
    """Prints the traceback to stderr, and the document to stdout."""
    if result.error is not None and result.error.traceback:
        write(color_traceback(for_terminal("\n".join(result.error.traceback))) + "\n", sys.stderr)
    fields = choose_fields(result)
    line = json.dumps(fields, ensure_ascii=False)
    if len(line) > width_of(sys.stdout):
        lines = [f'  "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in fields.items()]
        line = "{\n" + ",\n".join(lines) + "\n}"
    write(color_json(for_terminal(line)) + "\n", sys.stdout)


def color_json(text: str) -> str:
    """Colours a JSON document, if stdout is a terminal whose user wants colours."""
    if not (sys.stdout.isatty() and wants_color()):
        return text
    return _TOKEN.sub(lambda found: f"\x1b[{_COLORS[found.lastgroup or 'text']}m{found[0]}\x1b[0m", text)
