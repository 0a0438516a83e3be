"""`console`: a terminal on a kernel. Leaving it leaves the kernel running."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers import Python3Lexer

from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.base._errors import InvalidInput
from kernelbox.base._limits import parse_limits
from kernelbox.cli.commands._exec import CtrlC, follow
from kernelbox.cli.terminal._output import say
from kernelbox.cli.terminal._pretty import Screen, progress
from kernelbox.core._options import choose_sandbox
from kernelbox.host.files._home import Home
from kernelbox.host.store._record import KernelRecord
from kernelbox.wire._results import ExecutionResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

# Seconds that a key waits for a kernel that is busy with another client's cell.
_KEY_PATIENCE = 0.5

# A file in the home. Bytes of it that are read, from its end: a year of typing.
_HISTORY = "console_history"
_LONGEST_HISTORY = 1024 * 1024

# Cells in a console have no timeout: a person can press Ctrl-C.
_NO_TIMEOUT = 365 * 24 * 3600.0


def run(options: Namespace) -> int:
    """Runs the command."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput.saying("the console needs a terminal on stdin and stdout; use `kernelbox exec` in scripts")
    sandbox = choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level)
    with progress(f"starting kernel {options.name!r}"):
        limits = parse_limits("--limit", options.limit)
        record = _sync.get_or_create(options.name, limits=limits, sandbox=sandbox)
    Console(record).run()
    return 0


class Console:
    """Reads cells, runs them in the kernel, and shows what they do."""

    def __init__(self, record: KernelRecord) -> None:
        self._name = record.name
        self._count = record.attempt_count + 1
        self._session: PromptSession[str] = PromptSession(
            message=self._prompt,
            multiline=True,
            prompt_continuation=lambda width, line, wrapped: "...: ".rjust(width),
            lexer=PygmentsLexer(Python3Lexer),
            completer=KernelCompleter(record),
            complete_in_thread=True,
            complete_while_typing=False,
            history=_history(),
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=_key_bindings(record),
        )

    def run(self) -> None:
        """Reads and runs cells until the user leaves."""
        print(f"kernel {self._name!r}: Ctrl-D leaves it running, Ctrl-C interrupts a cell")
        while True:
            try:
                code = self._session.prompt()
            except KeyboardInterrupt:
                continue  # at the prompt it only clears the line
            except EOFError:
                break
            if code.strip() in ("exit", "quit", "exit()", "quit()"):
                break
            if code.strip():
                self._execute(code)
        say(f"kernel {self._name!r} goes on; `kernelbox destroy --name {shlex.quote(self._name)}` ends it")

    def _prompt(self) -> HTML:
        return HTML("<ansigreen>{} [{}]: </ansigreen>").format(self._name, self._count)

    def _execute(self, code: str) -> None:
        screen = Screen()
        with CtrlC() as ctrl_c:
            result = follow(_sync.stream(self._name, code, timeout=_NO_TIMEOUT), self._name, screen.show, ctrl_c)
        screen.finish(result)
        self._count = (result.execution_count or self._count) + 1 if result.state == "kept" else 1
        _end_line(result)


class KernelCompleter(Completer):
    """Completes from the kernel's live objects."""

    def __init__(self, record: KernelRecord) -> None:
        self._record = record

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        args: dict[str, object] = {"code": document.text, "cursor_pos": document.cursor_position}
        reply = _ask(self._record, "complete", args)
        matches, start = reply.get("matches"), reply.get("cursor_start")
        if not isinstance(matches, list) or not isinstance(start, int):
            return
        for match in matches:
            yield Completion(str(match), start_position=min(0, start - document.cursor_position))


def _key_bindings(record: KernelRecord) -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        reply = _ask(record, "is_complete", {"code": buffer.text})
        at_end = not buffer.document.text_after_cursor.strip()
        if at_end and reply.get("status") != "incomplete":
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n" + _indent(reply))

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


def _indent(reply: dict[str, object]) -> str:
    """Returns the indentation of the next line. Other text from a kernel must not appear as if it were typed."""
    indent = reply.get("indent")
    return indent if isinstance(indent, str) and not indent.strip(" ") else ""


def _ask(record: KernelRecord, what: str, args: dict[str, object]) -> dict[str, object]:
    here = kernels()
    current = here.find(record.name)
    if current is None or current.status != "idle":
        return {}
    return here.kernel(current).ask(what, args, patience=_KEY_PATIENCE) or {}


def _end_line(result: ExecutionResult) -> None:
    """Begins a new line for the prompt if the cell left one unfinished."""
    if result.output and not result.output.endswith("\n") and result.return_value is None and result.error is None:
        print()


class HomeHistory(History):
    """The cells that were typed, in a file of the home. Each line begins with +; an empty line separates cells."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self._home = home

    def load_history_strings(self) -> Iterable[str]:
        """Yields the cells, the latest first."""
        try:
            with self._home.open() as place:
                text = place.tail(_HISTORY, _LONGEST_HISTORY).decode("utf-8", "replace")
        except OSError:  # there is none yet, or it is not usable
            return
        for block in reversed(text.split("\n\n")):
            lines = [line.removeprefix("+") for line in block.split("\n") if line.startswith("+")]
            if lines:
                yield "\n".join(lines)

    def store_string(self, string: str) -> None:
        """Adds a cell."""
        lines = "".join(f"+{line}\n" for line in string.split("\n"))
        with contextlib.suppress(OSError), self._home.open() as place:
            fd = place.open_for_writing(_HISTORY, os.O_APPEND)
            try:
                os.write(fd, f"\n{lines}".encode("utf-8", "replace"))
            finally:
                os.close(fd)


def _history() -> History:
    config = kernels().config
    return HomeHistory(Home(config.home, config.key_file))
