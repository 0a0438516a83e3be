"""A program that a cell wants to start: exact bytes, made before it is approved, both shown and run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernelbox.guest._exact_values import plain_text, to_bytes, to_text
from kernelbox.guest.programs._command_environment import Environment, is_given
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# The options of `%%script` itself, which are not passed on to the program.
_OPTIONS = re.compile(r"(?<!\S)--(?:bg|no-raise-error|(?:out|err|proc)(?:=|\s+)\S+)(?!\S)")

_HALF = re.compile("[\ud800-\udfff]")


# What an interactive bash would run at its first prompt, end after, or look for mail by.
_FOR_TERMINALS = (b"MAILCHECK", b"PROMPT_COMMAND", b"TMOUT")

Kind = Literal["shell", "script", "bash"]


@dataclass(frozen=True, slots=True)
class Approval:
    """Shows that a host has accepted a program: the question that it answered, and the seal of its answer, if any."""

    execution_id: str
    number: int
    seal: str


@dataclass(frozen=True, slots=True)
class Program:
    """What is started, and as what it is shown. What must be approved has the `directory` that it runs in."""

    kind: Kind
    words: tuple[bytes, ...]
    environment: Environment
    command: str
    line: str = ""
    stdin: bytes | None = None
    directory: bytes | None = None
    approval: Approval | None = None

    def show(self, *, with_changes: bool = True) -> dict[str, object]:
        """Returns the arguments by which it is approved: no two programs of a kernel have the same."""
        shown: dict[str, object] = {"cmd": self.command}
        if self.line:
            shown["program"] = self.line
        if self.stdin is not None and not self._is_plain_line():
            shown["argv"] = [to_text(word) for word in self.words]
        if self.directory is not None and not is_given(self.directory):
            shown["cwd"] = to_text(self.directory)
        changes = self.environment.changes if with_changes else None
        if changes:
            shown["env"] = changes
        return shown if _is_text(shown) else {**_escape(shown), "escaped": True}

    def _is_plain_line(self) -> bool:
        """Tells whether the line of a script says by itself what is started, without quotes to be taken away."""
        if not self.line:
            return self.words == (b"bash",)
        return _OPTIONS.sub("", self.line).split() == [to_text(word) for word in self.words]


def shell_program(command: str, environment: Environment, shell: bytes, directory: bytes | None) -> Program:
    """Returns what runs `!command`."""
    data = _encode(command)
    return Program("shell", (shell, b"-c", data), environment, to_text(data), directory=directory)


def bash_program(code: str, environment: Environment, directory: bytes | None) -> Program:
    """Returns what runs a bash cell by itself."""
    data = _encode(code)
    words = (b"bash", b"--noprofile", b"--norc", b"-c", data)
    return Program("bash", words, environment, to_text(data), "bash", directory=directory)


def lasting_bash(environment: Environment, directory: bytes | None) -> Program:
    """Returns the bash that bash cells share. It is interactive, but at no terminal, and keeps no history in a file."""
    words = (b"bash", b"--noprofile", b"--norc", b"--noediting", b"+o", b"history", b"-i")
    pairs = tuple(pair for pair in environment.pairs if pair[0] not in _FOR_TERMINALS)
    return Program("bash", words, Environment((*pairs, (b"MAILCHECK", b"-1"))), "bash", directory=directory)


def script_program(
    line: str, argv: Sequence[str], cell: str, environment: Environment, directory: bytes | None
) -> Program:
    """Returns what runs a `%%script` cell: the program that the line names reads the cell."""
    line, cell = plain_text(line), plain_text(cell)
    data = (cell if cell.endswith("\n") else cell + "\n").encode("utf-8", "replace")
    _refuse_nul(data)
    words = tuple(_encode(word) for word in argv)
    shown = "" if line == "bash" else to_text(_encode(line))
    return Program("script", words, environment, data.decode(), shown, data, directory)


def _encode(text: str) -> bytes:
    data = to_bytes(plain_text(text))
    _refuse_nul(data)
    return data


def _is_text(value: object) -> bool:
    """Tells whether all its bytes are UTF-8: `to_text` turns others into lone surrogates."""
    if isinstance(value, dict):
        return all(_is_text(name) and _is_text(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(_is_text, value))
    return not isinstance(value, str) or _HALF.search(value) is None


def _escape(value: Any) -> Any:
    r"""Writes bytes that are not UTF-8 as `\xff`, and a backslash as two: what differs stays different."""
    if isinstance(value, dict):
        return {_escape(name): _escape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if not isinstance(value, str):
        return value
    text = value.replace("\\", r"\\")
    return "".join([f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else char for char in text])


def _refuse_nul(data: bytes) -> None:
    if b"\0" in data:
        raise ValueError("a command cannot have a NUL character in it: the system would end it there")
