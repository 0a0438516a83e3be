"""IPython's shell, adapted to our kernel.

The class is called ZMQInteractiveShell because that is the name libraries look for to find that they are in a
notebook (pandas, rich, tqdm, plotly); no ZeroMQ is involved.
"""

from __future__ import annotations

import builtins as user_builtins

# What IPython and Python import when a cell first needs it: here, and not from the working directory.
import difflib  # noqa: F401
import hashlib  # noqa: F401
import html  # noqa: F401
import re
import sys
import warnings
from contextvars import Token
from operator import attrgetter
from types import ModuleType
from typing import Any

from IPython.core.autocall import IPyAutocall, ZMQExitAutocall
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import TryNext, UsageError
from IPython.core.events import EventManager, available_events
from IPython.core.interactiveshell import InteractiveShell, InteractiveShellABC
from IPython.core.macro import Macro
from IPython.core.payload import PayloadManager
from traitlets import Any as AnyTrait
from traitlets import TraitError, Type
from traitlets.config import Config

from kernelbox.guest._memory_reserve import spend_reserve
from kernelbox.guest._stdlib import contextlib
from kernelbox.guest.output._display import DisplayFormatter, Publisher, ResultHook
from kernelbox.guest.output._origins import ORIGIN, Origin
from kernelbox.guest.shell import _traceback
from kernelbox.guest.shell._cell_names import name_cells_everywhere
from kernelbox.guest.shell._changes import Changes
from kernelbox.guest.shell._error_hints import forget_refused
from kernelbox.guest.shell._inputs import Inputs
from kernelbox.guest.shell._keyboard import Debugger, keyboard
from kernelbox.guest.shell._magics import (
    SCREENS,
    FileInspector,
    FrontEndMagics,
    Installers,
    IpykernelFinder,
    PagerMagics,
)
from kernelbox.guest.shell._profile import LazyProfile, Stored, storing_nothing
from kernelbox.guest.shell._shell_commands import Commands, Scripts
from kernelbox.guest.shell._traceback import format_exception, format_value
from kernelbox.wire._builtins import find_replaced, keep_builtins
from kernelbox.wire._json import type_name
from kernelbox.wire._messages import Display
from kernelbox.wire._output_limit import bound, value_limit
from kernelbox.wire._schema import MAX_ERROR, MAX_LINES

keep_builtins(globals())

# JSON's readers in other languages take whole numbers up to here.
_LAST_COUNT = 2**53

# What any of IPython's transformers looks for: escapes, continued magics, prompts that were copied, indentation.
_SPECIAL = re.compile(r"[%!?\\]|\A\s|^\s*[,;/]|>>>|\.\.\.|In \[", re.MULTILINE)

_FIRST_WORD = re.compile(r"\w+")


class Compiler(CachingCompiler):
    """Keeps what the user wrote for tracebacks. IPython would show the transformed code."""

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        name = super().cache(transformed_code, number, raw_code)
        if raw_code is not None and transformed_code not in (raw_code, raw_code + "\n"):
            lines, made = raw_code.splitlines(), transformed_code.splitlines()
            if len(lines) == len(made) or raw_code.startswith("%%"):
                _traceback.written[name] = lines
        return name


class Hooks(EventManager):
    """Calls what the user has registered for `pre_execute` and the like. If that fails, the cell does not."""

    shell: ZMQInteractiveShell

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        if self.callbacks[event]:
            self.shell.running.append(None)
            try:
                super().trigger(event, *args, **kwargs)
            finally:
                self.shell.running.pop()
                self.shell.leave_displayhook()


class ZMQInteractiveShell(InteractiveShell, Commands, Stored):
    """Runs cells; what they write, show and raise goes to the kernel that owns it."""

    compiler_class = Type(Compiler)
    debugger_cls = Debugger
    displayhook_class = Type(ResultHook)
    display_pub_class = Type(Publisher)
    inspector_class = Type(FileInspector)
    payload_manager: PayloadManager
    profile_dir: Any  # a LazyProfile
    display_pub: Publisher
    displayhook: ResultHook
    # Every cell sets or reads these. Nobody observes them, and a trait costs a multiple of an attribute.
    last_execution_succeeded: Any = True
    last_execution_result: Any = None
    history_manager: Any = None
    builtin_trap: Any = None
    display_trap: Any = None
    display_formatter: Any = None
    _execution_count = 1
    _transformer_counts: tuple[int, int, int] | None = None
    kernel = AnyTrait()  # libraries ask `has_trait("kernel")`
    system = system_piped = system_raw = Commands.system  # in place of IPython's own
    getoutput = Commands.getoutput
    db = Stored.db

    def __init__(self, **kwargs: Any) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"  # what it would be without a database
        config.IPKernelApp.connection_file = ""  # tqdm looks for this key
        # For each code that runs, what its failure will be told by: None if it is not the cell's.
        self.running: list[Any] = []  # asked for already while the shell is built
        with storing_nothing():
            super().__init__(config=config, ipython_dir="", profile_dir=LazyProfile(), colors="nocolor", **kwargs)
        self.error: BaseException | None = None
        self.in_cell = False
        self.exit_requested = False
        self.keepkernel_on_exit: bool | None = None  # set by `exit(keep_kernel=True)`
        self.takes_payloads = False  # whether the client of the cell does
        self.changes: Changes | None = None
        # IPython's advice after sys.exit(); a model that took it would end its kernel.
        warnings.filterwarnings("ignore", message="To exit: use 'exit', 'quit', or Ctrl-D.")
        keyboard.install()
        _pass_for_ipykernel()
        name_cells_everywhere()

    def _set_execution_count(self, count: int) -> None:
        if type(count) is not int or not 0 <= count <= _LAST_COUNT:  # every message about a cell has it
            raise TraitError(f"execution_count is a number from 0 to {_LAST_COUNT}")
        self._execution_count = count

    # Not a trait, as above. Each cell reads it seven times, so reading it calls no function of Python's.
    execution_count = property(attrgetter("_execution_count"), _set_execution_count)

    # -- what IPython calls ----------------------------------------------------------------------------------

    def init_history(self) -> None:
        """Keeps the inputs of this process, without a database."""
        self.history_manager = Inputs(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def _ipython_dir_changed(self, change: Any) -> None:
        """Creates nothing."""

    def init_environment(self) -> None:
        """Leaves the environment to what specializes the kernel."""

    def init_virtualenv(self) -> None:
        """Does nothing: the interpreter is the one of the environment."""

    def init_magics(self) -> None:
        super().init_magics()
        self.register_magics(PagerMagics, Scripts, FrontEndMagics, Installers)

    def init_display_formatter(self) -> None:
        self.display_formatter = DisplayFormatter(parent=self)
        self.configurables.append(self.display_formatter)

    async def run_code(self, code_obj: Any, result: Any = None, *, async_: bool = False) -> Any:
        _give_builtins(self.user_global_ns)
        if self.changes is not None:
            self.changes.see(code_obj)
        self.running.append(result)
        try:
            return await super().run_code(code_obj, result, async_=async_)
        finally:
            self.running.pop()  # first: an interrupt may strike in any call
            self.leave_displayhook()
            _give_builtins(self.user_global_ns)  # for queries, in which expressions are evaluated

    def safe_execfile(self, fname: str, *where: dict[str, Any], **options: bool) -> None:
        """Runs a file, for `%run`."""
        if where:
            _give_builtins(where[0])
        super().safe_execfile(fname, *where, **options)

    def leave_displayhook(self) -> None:
        """Ends what an interrupt has left in the middle."""
        if not self.running and self.displayhook.is_active:
            self.displayhook.finish_displayhook()

    def set_text_limit(self, limit: int) -> None:
        """Sets how many characters are kept of what the next cell shows."""
        self.display_pub.text_limit = self.displayhook.text_limit = limit

    def init_events(self) -> None:
        super().init_events()
        hooks = Hooks(self, available_events)
        hooks.callbacks = self.events.callbacks
        self.events = hooks

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("editor", _refuse_editor)
        self.set_hook("show_in_pager", _show_in_pager, 99)

    def enable_gui(self, gui: str | None = None) -> None:
        if gui not in (None, "inline", "agg", "asyncio", ""):
            raise UsageError(f"%gui {gui}: a kernel has no screen; use %matplotlib inline")

    def enable_matplotlib(self, gui: str | None = None) -> Any:
        """Draws inline where a screen is asked for, so that notebooks show their figures."""
        if isinstance(gui, str) and gui.lower() in SCREENS:
            print(f"%matplotlib {gui}: a kernel has no screen; figures are shown inline", file=sys.stderr)
            gui = "inline"
        return super().enable_matplotlib(gui)

    def set_next_input(self, s: str, replace: bool = False) -> None:
        """Asks the front end to make a cell of what `%load` and the like have found, or shows it without one."""
        if self.takes_payloads:
            self.payload_manager.write_payload({"source": "set_next_input", "text": s, "replace": replace})
        else:
            print(s)

    def ask_exit(self) -> None:
        keep = bool(self.keepkernel_on_exit)
        self.exit_requested = not keep
        if self.takes_payloads:
            self.payload_manager.write_payload({"source": "ask_exit", "keepkernel": keep})

    def take_payloads(self) -> list[dict[str, Any]]:
        """Returns what the front end is to do after the cell."""
        payloads: list[dict[str, Any]] = self.payload_manager.read_payload()
        self.payload_manager.clear_payload()
        return payloads

    # What libraries use to have the output of a thread go to one cell, as in ipykernel.

    def get_parent(self) -> dict[str, Any]:
        parent: dict[str, Any] = self.kernel.get_parent()
        return parent

    def set_thread_parent(self, parent: dict[str, Any]) -> Token[Origin | None]:
        header = parent["header"]
        return ORIGIN.set(Origin(str(header.get("execution_id", "")), str(header["msg_id"])))

    def reset_thread_parent(self, token: Token[Origin | None]) -> None:
        ORIGIN.reset(token)

    def set_parent(self, parent: dict[str, Any]) -> None:
        self.set_thread_parent(parent)

    def _exiter_default(self) -> ZMQExitAutocall:
        return ZMQExitAutocall(self)

    def transform_cell(self, raw_cell: str) -> str:
        """Turns IPython's syntax into Python. A cell without such syntax is not tokenized."""
        if self.is_plain(raw_cell):
            return end_line(raw_cell)
        transformed: str = super().transform_cell(raw_cell)
        return transformed

    def is_plain(self, cell: str) -> bool:
        """Tells whether a cell has none of IPython's syntax, so that no transformer would change it."""
        return not (self.has_own_transformers() or _SPECIAL.search(cell) or self.may_be_a_command(cell))

    def may_wait(self, cell: str, plain: bool) -> bool:
        """Tells whether a cell can give way to the event loop: the code of one that does has one of these words in it.

        That code may also come from elsewhere: from a macro that the cell names, or from a transformer.
        """
        if "await" in cell or "async" in cell or self.ast_transformers:
            return True
        return not plain and (self.has_own_transformers() or self.may_be_a_command(cell))

    def has_own_transformers(self) -> bool:
        manager = self.input_transformer_manager
        counts = (len(manager.cleanup_transforms), len(manager.line_transforms), len(manager.token_transformers))
        if self._transformer_counts is None:
            self._transformer_counts = counts
        return bool(self.input_transformers_post) or counts != self._transformer_counts

    def may_be_a_command(self, cell: str) -> bool:
        """Tells whether a cell may be `exit`, a macro, a magic without its `%` or a call without its brackets."""
        word = _FIRST_WORD.match(cell)
        if word is None or "\n" in cell.rstrip("\n"):
            return False
        named = isinstance(self.user_ns.get(word[0]), (IPyAutocall, Macro))
        return named or bool(self.autocall) or word[0] in self.magics_manager.magics["line"]

    # -- errors ----------------------------------------------------------------------------------------------

    def showtraceback(
        self,
        exc_tuple: Any = None,
        filename: str | None = None,
        tb_offset: int | None = None,
        exception_only: bool = False,
        running_compiled_code: bool = False,
    ) -> None:
        """Keeps the exception that ends the cell, for the kernel to report; shows any other in its place."""
        try:
            _, value, _ = self._get_exc_info(exc_tuple)
        except ValueError:
            print("No traceback available to show.", file=sys.stderr)
            return
        if isinstance(value, UsageError):
            self.show_usage_error(value)
        elif not self._ends_the_cell(value):
            name, said, lines, _ = self.describe(value, self.displayhook.text_limit)
            text = f"{name}: {said}" if exception_only else "\n".join(lines)
            outbox = self.displayhook.outbox
            outbox.send(Display(outbox.execution_id, "error", {"text/plain": text}, {"ename": name, "evalue": said}))
            return
        if self._ends_the_cell(value):
            self.error = value

    def _ends_the_cell(self, exc: BaseException) -> bool:
        """Tells whether an exception is the cell's own failure.

        That is what its code raised, what kept it from running, or what kept its value from being shown.
        """
        if not self.running:
            return self.in_cell
        if len(self.running) > 1 or self.running[0] is None:
            return False
        return self.running[0].error_in_exec is exc or bool(self.displayhook.is_active)

    def _format_exception_for_storage(self, exception: BaseException, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Keeps no second copy of a traceback for the history; making one would cost IPython 100 ms."""
        return {}

    def showsyntaxerror(self, filename: str | None = None, running_compiled_code: bool = False) -> None:
        self.showtraceback()

    def showindentationerror(self) -> None:
        self.showtraceback()

    def describe(self, exc: BaseException, limit: int) -> tuple[str, str, list[str], bool]:
        """Returns name, value and traceback of an exception, bounded, and whether they had to be cut.

        This succeeds no matter what the exception does.
        """
        if issubclass(type(exc), MemoryError):
            spend_reserve()
        name, value = type_name(exc), format_value(exc)
        try:
            lines = self._format_traceback(exc, value)
        except BaseException as failure:  # noqa: BLE001  # the user's __notes__, loaders, _render_traceback_
            lines = [f"{name}: {value}", f"(formatting the traceback failed: {type_name(failure)})"]
        with contextlib.suppress(Exception):  # it uses `warnings`, which a cell can patch
            forget_refused(exc, value)
        if replaced := find_replaced():
            lines.append(
                f"Hint: cells have replaced or deleted built-in names: {', '.join(replaced)}; restart the kernel"
            )
        limit, text = min(limit or MAX_ERROR, MAX_ERROR), "\n".join(lines)
        lines = bound(text, limit).split("\n", MAX_LINES) if text else []
        said = bound(value, min(value_limit(limit), MAX_ERROR))
        return name, said, lines, len(said) < len(value) or len(text) > limit

    def _format_traceback(self, exc: BaseException, value: str) -> list[str]:
        if isinstance(exc, UsageError):
            return []  # it has been written to stderr, as IPython does
        if isinstance(exc, SystemExit):
            return [f"SystemExit: {value}", "The kernel goes on; exit() ends it."]
        if callable(render := getattr(exc, "_render_traceback_", None)):
            return [str(line) for line in render() or ()]
        return format_exception(exc, value)


def end_line(cell: str) -> str:
    return cell if cell.endswith("\n") else cell + "\n"


def _give_builtins(names: dict[str, Any]) -> None:
    """Gives a namespace the built-in names that cells see. Otherwise it would get those of IPython's modules."""
    names.setdefault("__builtins__", vars(user_builtins))


def _show_in_pager(shell: ZMQInteractiveShell, data: Any, start: int = 0, screen_lines: int = 0) -> None:
    """Asks the front end to show a page, as for `name?`; without a front end it is printed."""
    if not shell.takes_payloads:
        raise TryNext
    page = data if isinstance(data, dict) else {"text/plain": data}
    shell.payload_manager.write_payload({"source": "page", "data": page, "start": max(0, start)})


def _refuse_editor(*_: Any) -> None:
    """Stands in for the editor that `%edit` would start."""
    raise UsageError("%edit: a kernel has no screen; write the file with %%writefile")


InteractiveShellABC.register(ZMQInteractiveShell)


def _pass_for_ipykernel() -> None:
    """Answers the questions by which tqdm and plotly find out that they are in a notebook."""
    module = ModuleType("ipykernel.zmqshell", ZMQInteractiveShell.__doc__)
    module.ZMQInteractiveShell = ZMQInteractiveShell  # type: ignore[attr-defined]  # what a module is for
    sys.modules[module.__name__] = module
    sys.meta_path.insert(0, IpykernelFinder(module))
    ZMQInteractiveShell.__module__ = module.__name__
