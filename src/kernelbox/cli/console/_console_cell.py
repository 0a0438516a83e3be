"""A cell of a console: it runs in the kernel, and asks the person at the keyboard what it wants to know."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys

from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.cli.commands._exec import CtrlC, follow
from kernelbox.cli.commands._waiting import WaitingNotice
from kernelbox.cli.console._console_screen import ConsoleScreen
from kernelbox.cli.terminal._pretty import write
from kernelbox.cli.terminal._terminal_text import for_terminal
from kernelbox.core._cell_options import cell_options
from kernelbox.shells._blocking_cell import stream_cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kernelbox.core._arguments import LanguageName
    from kernelbox.wire._results import ExecutionResult, OutputItem

# Cells in a console have no timeout: a person can press Ctrl-C.
_NO_TIMEOUT = 365 * 24 * 3600.0

# Ctrl-D, which stands for the end of the input.
_END_OF_FILE = "\x04"


class ConsoleCell:
    """Runs one cell. `next_input` is what the next prompt begins with, as `%load` and `%recall` ask for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._screen = ConsoleScreen(self._count)
        self._ctrl_c = CtrlC()
        self._notice = WaitingNotice(name)
        self.next_input = ""

    def run(self, code: str, language: LanguageName) -> ExecutionResult:
        """Runs the cell to its end and shows what it does."""
        here = kernels()
        options = cell_options(here.config, here.home, language=language, timeout=_NO_TIMEOUT, person=self)
        with self._ctrl_c, self._notice:
            steps = stream_cell(here, self._name, code, options, None, may_pause=False)
            result = follow(steps, self._name, self._show, self._ctrl_c)
        self._screen.finish(result)
        self._screen.begin_line()
        return result

    def read_line(self, prompt: str, *, password: bool) -> str | None:
        """Reads what `input()`, `getpass()` or a debugger asks for; None after Ctrl-C, which interrupts the cell."""
        self._notice.stop()
        self._screen.at_start = True
        shown = for_terminal(prompt)
        try:
            if password:
                return getpass.getpass(shown)
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # gives `input` the keys of a line editor

            return input(shown)
        except EOFError:
            write("\n", sys.stdout)
            return _END_OF_FILE
        except KeyboardInterrupt:
            write("\n", sys.stdout)
            self._ctrl_c.pressed = 0
            _sync.interrupt(self._name)
            return None

    def take_payload(self, content: dict[str, object]) -> None:
        """Does what IPython asks of its front end: shows a page, or prepares the next input."""
        match content:
            case {"source": "page", "data": {"text/plain": str(text)}}:
                self._screen.begin_line()
                _show_page(for_terminal(text))
            case {"source": "set_next_input", "text": str(text)}:
                self.next_input = text

    def _show(self, item: OutputItem) -> None:
        self._notice.stop()
        self._screen.show(item)

    def _count(self) -> int:
        """Returns the number of the cell, which is in the kernel's state file."""
        here = kernels()
        record = here.find(self._name)
        state = None if record is None else here.kernel(record).state()
        return state.execution_count if state is not None else 0


def _show_page(text: str) -> None:
    """Shows a text, in a pager if it is longer than the screen."""
    if text.count("\n") < os.get_terminal_size().lines:
        print(text, flush=True)
        return
    import pydoc

    pydoc.pager(text)
