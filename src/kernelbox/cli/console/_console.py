"""A terminal on a kernel, as IPython's own. Leaving it leaves the kernel running."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.styles import Style
from pygments.lexers import BashLexer, Python3Lexer

from kernelbox.api._configured import kernels
from kernelbox.base._environment import host_variable
from kernelbox.cli.console._console_cell import ConsoleCell
from kernelbox.cli.console._kernel_news import KernelNews
from kernelbox.cli.console._keys import KernelCompleter, make_key_bindings
from kernelbox.cli.console._typed_history import HomeHistory
from kernelbox.cli.terminal._output import say
from kernelbox.host.files._home import Home
from kernelbox.host.store._record import KernelRecord

# Seconds between two looks at the kernel while the prompt waits.
_LOOK_AGAIN = 1.0

# The terminal's own colours, as in IPython's neutral theme: they can be read on a dark and on a light ground.
_COLORS = {
    "pygments.comment": "italic ansibrightblack",
    "pygments.keyword": "bold ansigreen",
    "pygments.literal.number": "ansigreen",
    "pygments.literal.string": "ansiyellow",
    "pygments.name.builtin": "ansigreen",
    "pygments.name.class": "ansiblue",
    "pygments.name.decorator": "ansiblue",
    "pygments.name.exception": "ansired",
    "pygments.name.function": "ansiblue",
    "pygments.name.namespace": "ansiblue",
    "pygments.operator.word": "bold ansigreen",
}

_LEAVE = ("exit", "quit", "exit()", "quit()")


class Console:
    """Reads cells, runs them in the kernel, and shows what they do."""

    def __init__(self, record: KernelRecord) -> None:
        self._name = record.name
        self._count = record.attempt_count + 1
        self._in_bash = False
        self._next_input = ""
        self._last_code = ""
        self._news = KernelNews(record)
        config = kernels().config
        self._session: PromptSession[str] = PromptSession(
            message=self._prompt,
            multiline=True,
            prompt_continuation=lambda width, line, wrapped: "...: ".rjust(width),
            completer=KernelCompleter(record.name, lambda: not self._in_bash),
            complete_in_thread=True,
            complete_while_typing=False,
            history=HomeHistory(Home(config.home, config.key_file)),
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=make_key_bindings(record.name, lambda: not self._in_bash),
            style=Style.from_dict(_COLORS),
            include_default_pygments_style=False,
        )

    def run(self) -> None:
        """Reads and runs cells until the user leaves."""
        print(f"kernel {self._name!r}: Ctrl-D leaves it running, Ctrl-C interrupts, %bash is its shell")
        while (code := self._read()) is not None:
            self._take(code)
        say(f"kernel {self._name!r} goes on; `kernelbox destroy {shlex.quote(self._name)}` ends it")

    def _read(self) -> str | None:
        """Returns what was typed; None if the user leaves."""
        begun, self._next_input = self._next_input, ""
        lexer = PygmentsLexer(BashLexer if self._in_bash else Python3Lexer)
        while True:
            try:
                code = self._session.prompt(lexer=lexer, default=begun, pre_run=self._watch)
            except KeyboardInterrupt:
                begun = ""  # at the prompt it only clears the line
                continue
            except EOFError:
                code = "exit"
            if code.strip() not in _LEAVE:
                return code
            if not self._in_bash:
                return None
            self._in_bash, lexer = False, PygmentsLexer(Python3Lexer)

    def _take(self, code: str) -> None:
        """Does what was typed: mostly, it runs in the kernel."""
        word, _, rest = code.strip().partition(" ")
        if self._in_bash:
            self._execute(code, bash=True)
        elif word == "%bash" and rest.strip():
            self._execute(rest, bash=True)
        elif word == "%bash":
            print("this is the kernel's bash, which keeps its state; exit goes back to Python")
            self._in_bash = True
        elif word in ("%edit", "%ed"):
            edited = _edit(rest.strip(), self._last_code)
            if edited is not None:
                self._execute(edited)
        elif word:
            self._execute(code)

    def _execute(self, code: str, *, bash: bool = False) -> None:
        cell = ConsoleCell(self._name)
        result = cell.run(code, "bash" if bash else "python")
        self._next_input = cell.next_input
        self._last_code = self._last_code if bash else code
        if not bash:
            self._count = (result.execution_count or self._count) + 1 if result.state == "kept" else 1
        self._news.look()  # no news any more: the cell has shown the person what happened to the kernel

    def _prompt(self) -> HTML:
        if self._in_bash:
            return HTML("<ansiblue>{} $ </ansiblue>").format(self._name)
        return HTML("<ansigreen>{} [{}]: </ansigreen>").format(self._name, self._count)

    def _watch(self) -> None:
        """Shows at the prompt what happens to the kernel while the prompt waits."""
        get_app().create_background_task(self._tell_news())

    async def _tell_news(self) -> None:
        while True:
            if news := await asyncio.to_thread(self._news.look):
                self._count = 1
                await run_in_terminal(lambda: say(news))
                get_app().invalidate()
            await asyncio.sleep(_LOOK_AGAIN)


def _edit(path: str, code: str) -> str | None:
    """Opens the user's editor on a file, or on the last cell; returns the text to run, None if it failed."""
    command = shlex.split(host_variable("VISUAL") or host_variable("EDITOR") or "vi")
    if path:
        return _edit_file(command, os.path.expanduser(shlex.split(path)[0]))
    with tempfile.TemporaryDirectory(prefix="kernelbox-") as directory:
        file = os.path.join(directory, "cell.py")
        with open(file, "w", encoding="utf-8") as out:
            out.write(code + "\n" if code else "")
        return _edit_file(command, file)


def _edit_file(command: list[str], file: str) -> str | None:
    try:
        status = subprocess.run([*command, file], check=False).returncode
        if status:
            say(f"%edit: the editor {command[0]!r} exited with status {status}; nothing was run")
            return None
        with open(file, encoding="utf-8") as edited:
            return edited.read()
    except (OSError, UnicodeDecodeError) as exc:
        say(f"%edit: {exc}; VISUAL or EDITOR names the editor")
        return None
