"""A guarded kernel's request to its runner: to start a program, with all that decides what it does.

The runner trusts none of it. It builds the program again, exactly as it is shown for approval, and checks whether a
host has sealed that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from kernelbox.guest._exact_values import to_bytes, to_text
from kernelbox.guest.programs._command_environment import given_shell, make_environment
from kernelbox.guest.programs._program import Kind, Program, bash_program, script_program, shell_program
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())

# Bytes of a request: more than a host lets a cell ask for at once.
LONGEST = 256 * 1024 * 1024


class ProgramRefused(Exception):
    """Raised when the runner does not start a program; it says why."""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A program that is to be started, and the answer that allows it."""

    kind: Kind
    execution_id: str
    number: int
    seal: str
    command: str
    line: str
    words: list[str]
    environment: list[list[str]]
    directory: str

    @classmethod
    def of(cls, program: Program) -> ProgramRequest:
        assert program.approval is not None
        assert program.directory is not None
        return cls(
            program.kind,
            program.approval.execution_id,
            program.approval.number,
            program.approval.seal,
            program.command,
            program.line or "bash",
            [to_text(word) for word in program.words],
            [[to_text(name), to_text(value)] for name, value in program.environment.pairs],
            to_text(program.directory),
        )

    def encode(self) -> bytes:
        return json.dumps([getattr(self, name) for name in self.__slots__]).encode()

    @classmethod
    def decode(cls, data: bytes) -> ProgramRequest:
        """Reads a request, which may be anything; raises ProgramRefused."""
        try:
            fields = json.loads(data)
            request = cls(*fields)
        except (ValueError, TypeError, RecursionError) as exc:
            raise ProgramRefused("the runner does not understand the request") from exc
        texts = (request.execution_id, request.seal, request.command, request.line, request.directory, *request.words)
        pairs = [text for pair in request.environment for text in pair]
        are_texts = all(type(text) is str for text in (*texts, *pairs))
        if not are_texts or type(request.number) is not int or any(len(pair) != 2 for pair in request.environment):
            raise ProgramRefused("the runner does not understand the request")
        return request

    @property
    def tool_name(self) -> str:
        """The tool name under which the program is approved."""
        return "shell_magic" if self.kind == "script" else "shell"

    def program(self, directory: bytes | None = None) -> Program:
        """Builds the program; `directory` is that of a bash that waits already. Raises ProgramRefused."""
        try:
            environment = make_environment((to_bytes(name), to_bytes(value)) for name, value in self.environment)
            there = to_bytes(self.directory) if directory is None else directory
            match self.kind:
                case "shell":
                    return shell_program(self.command, environment, given_shell(), there)
                case "script":
                    return script_program(self.line, self.words, self.command, environment, there)
                case "bash":
                    return bash_program(self.command, environment, there)
        except (ValueError, TypeError) as exc:
            raise ProgramRefused(f"it cannot be started: {exc}") from exc
        raise ProgramRefused("the runner does not understand the request")
