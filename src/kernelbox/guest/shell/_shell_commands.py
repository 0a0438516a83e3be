"""How the shell runs programs: `!cmd`, `x = !cmd` and `%%script`, each after it was approved."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import cell_magic, magics_class
from IPython.core.magics.script import ScriptMagics
from IPython.utils._process_posix import arg_split
from IPython.utils.text import LSString, SList

from kernelbox.guest._exact_values import plain_text
from kernelbox.guest._interrupts import held
from kernelbox.guest._stdlib import contextlib, os
from kernelbox.guest.programs._command_environment import given_shell, take_environment
from kernelbox.guest.programs._program import Program, script_program, shell_program
from kernelbox.guest.programs._run_command import run_command
from kernelbox.guest.programs._runner_link import start
from kernelbox.wire._builtins import keep_builtins

keep_builtins(globals())


class Commands:
    """What a shell runs commands with; the kernel that owns the shell knows whom to ask for approval."""

    def system(self: Any, cmd: str) -> None:
        """Runs `!cmd`."""
        program = self._shell_command(self.var_expand(cmd, depth=1))
        self._finish_command(program.command, run_command(program))

    def getoutput(self: Any, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """Runs `x = !cmd`."""
        program = self._shell_command(self.var_expand(cmd, depth=depth + 1))
        parts: list[str] = []  # of both streams
        self._finish_command(program.command, run_command(program, out=parts.append, err=parts.append))
        text = "".join(parts)
        return SList(text.splitlines()) if split else LSString(text)

    def approve(self: Any, tool: str, program: Program, *, with_changes: bool = True) -> Program:
        """Returns a program once it may run. It is shown for approval after all that the cell has written."""
        for stream in (*self.kernel.outbox.streams, sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a cell may have put anything in their place
                stream.flush()
        approved: Program = self.kernel.asks.ask_shell(tool, program, with_changes=with_changes)
        return approved

    def _shell_command(self: Any, command: str) -> Program:
        environment = take_environment()
        directory = self.kernel.asks.take_directory()
        shell = environment.shell if directory is None else given_shell()
        approved: Program = self.approve("shell", shell_program(command, environment, shell, directory))
        return approved

    def _finish_command(self: Any, command: str, status: int) -> None:
        self.user_ns["_exit_code"] = status
        if getattr(self, "system_raise_on_error", False) and status != 0:
            raise subprocess.CalledProcessError(status, command)


@magics_class
class Scripts(ScriptMagics):
    """`%%script`, `%%bash` and the like, without IPython's helper thread, which would not survive a fork."""

    @cell_magic("script")  # type: ignore[arg-type]  # IPython annotates it for bare use only
    def shebang(self, line: str, cell: str) -> None:
        """Runs the cell with the program that the line names."""
        line, cell = plain_text(line, "the line of a script"), plain_text(cell, "a script")
        args, command = ScriptMagics.shebang.parser.parse_known_args(arg_split(line, posix=os.name != "nt"))
        if not command:
            raise UsageError("%%script: name a program, as in %%script bash")
        shell: Any = self.shell
        directory = shell.kernel.asks.take_directory()
        program = shell.approve("shell_magic", script_program(line, command, cell, take_environment(), directory))
        try:
            if args.bg:
                self._start_in_background(program, args)
            else:
                self._run(program, args)
        except FileNotFoundError:
            print(f"Couldn't find program: {command[0]!r}")
            if args.bg:  # what an earlier program wrote is not what this one did
                shell.user_ns.update({name: io.BytesIO() for name in (args.out, args.err) if name})

    def _run(self, program: Program, args: Any) -> None:
        captured: dict[str, list[str]] = {name: [] for name in (args.out, args.err) if name}
        try:
            status = run_command(
                program,
                out=captured[args.out].append if args.out else None,
                err=captured[args.err].append if args.err else None,
            )
        finally:
            assert self.shell is not None
            for name, parts in captured.items():
                self.shell.user_ns[name] = "".join(parts)
        if args.raise_error and status != 0:
            raise subprocess.CalledProcessError(status, program.stdin or b"")

    def _start_in_background(self, program: Program, args: Any) -> None:
        with held():
            process = start(program, out="pipe" if args.out else "drop", err="pipe" if args.err else "drop")
        self._gc_bg_processes()
        self.bg_processes.append(process)
        assert self.shell is not None
        for name, value in ((args.out, process.stdout), (args.err, process.stderr), (args.proc, process)):
            if name:
                self.shell.user_ns[name] = value

    def _gc_bg_processes(self) -> None:
        self.bg_processes = [process for process in self.bg_processes if process.poll() is None]
