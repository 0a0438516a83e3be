"""`exec` and `run`: they run code in a kernel, and turn Ctrl-C into an interrupt of the cell."""

from __future__ import annotations

import sys

from kernelbox.api import _sync
from kernelbox.api._configured import kernels
from kernelbox.base._errors import InvalidInput
from kernelbox.base._light_stdlib import signal
from kernelbox.cli.commands._waiting import WaitingNotice
from kernelbox.cli.terminal._output import FAILED, INTERRUPTED, emit, say
from kernelbox.core._arguments import check_name
from kernelbox.core._options import choose_sandbox
from kernelbox.wire._layout import is_kernel_id
from kernelbox.wire._results import ExecutionResult, OutputItem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from kernelbox.core.approvals._requests import SyncApprovalRequest


def run(options: Namespace) -> int:
    """Runs the command."""
    code, key = _read_code(options), _read_key(options)
    show, finish = _presentation(options)

    def show_item(item: OutputItem) -> None:
        notice.stop()
        show(item)

    try:
        with CtrlC() as ctrl_c, WaitingNotice(key) as notice:
            steps = _start(options, key, code)
            result = follow(steps, key, show_item, ctrl_c)
    finally:
        if options.approve in ("all", "ask"):
            from kernelbox.cli.commands._manage_tools import end_sessions

            end_sessions()
    finish(result)
    if result.error is not None and result.error.ename == "StdinNotImplementedError" and sys.stderr.isatty():
        import shlex

        say(f"you can answer in `kernelbox console {shlex.quote(result.name)}`")
    if ctrl_c.pressed:
        told = result.error is not None and result.error.ename != "KeyboardInterrupt"
        if options.stream or options.form == "json" or not told:
            say(f"interrupted: {_what_became_of(result)}")
        return INTERRUPTED
    return 0 if result.ok else FAILED


def _what_became_of(result: ExecutionResult) -> str:
    """Describes what Ctrl-C did to a cell and its kernel."""
    if result.ending == "finished":
        return "the cell had just ended"
    if result.ending == "interrupted":
        return "the kernel kept its variables"
    return result.error.evalue if result.error else result.ending


class CtrlC:
    """While entered, Ctrl-C only ends the wait for the cell's next output; again, it ends a cell that does not stop."""

    def __init__(self) -> None:
        self.pressed = 0
        self.waiting = True

    def __enter__(self) -> CtrlC:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, signum: int, frame: object) -> None:
        self.pressed += 1
        if self.waiting or self.pressed > 1:
            raise KeyboardInterrupt


def _ask_terminal(request: SyncApprovalRequest) -> bool | str:
    from kernelbox.base._safe_text import TOO_LONG, show_whole
    from kernelbox.cli.commands._manage_tools import ask_terminal

    shown = show_whole(request.server_name, request.tool_name, request.tool_args)
    if shown is None:
        return TOO_LONG
    call, args = shown
    return ask_terminal(f"{call}({', '.join(f'{name}={value}' for name, value in args)})")


# Without the option nobody is asked: shell commands run, tool calls are rejected.
_APPROVE: dict[str | None, Callable[[SyncApprovalRequest], bool | str] | None] = {
    None: None,
    "all": lambda request: True,
    "ask": _ask_terminal,
    "none": lambda request: "it was run with --approve none",
}


def _start(options: Namespace, key: str, code: str) -> Iterator[object]:
    def start() -> Iterator[object]:
        return _sync.stream(
            key,
            code,
            language="bash" if options.bash else "python",
            timeout=options.timeout,
            images_dir=options.images_dir,
            output_char_limit=options.output_char_limit,
            budget=options.budget,
            approve=_APPROVE[options.approve],
        )

    if not sys.stderr.isatty():
        return start()
    from kernelbox.cli.terminal._pretty import opening

    with opening(key):
        return start()


def follow(steps: Iterator[object], key: str, show: Callable[[OutputItem], None], ctrl_c: CtrlC) -> ExecutionResult:
    """Shows a cell's output as it comes and returns its result; Ctrl-C interrupts only the cell."""
    interrupted = False
    while True:
        try:
            ctrl_c.waiting = True
            event = next(steps)
            ctrl_c.waiting = False
        except KeyboardInterrupt as exc:
            for item in getattr(exc, "missed", ()):
                if isinstance(item, OutputItem):
                    show(item)
            result = getattr(exc, "result", None)
            if isinstance(result, ExecutionResult):
                return result
            if ctrl_c.pressed > 1:
                say(f"gave up on a cell that does not stop; kernel {key!r} may be restarted, which loses its variables")
                raise
            interrupted = _sync.interrupt(key)  # pressed between two outputs: the cell still runs, so keep listening
            continue
        if isinstance(event, ExecutionResult):
            return event
        if isinstance(event, OutputItem):
            show(event)
        if ctrl_c.pressed and not interrupted:  # once: what the cell prints while it tidies up is no other Ctrl-C
            interrupted = _sync.interrupt(key)


def _presentation(options: Namespace) -> tuple[Callable[[OutputItem], None], Callable[[ExecutionResult], None]]:
    """Returns what to do with each output, and with the result."""
    if options.stream:
        return (
            lambda item: emit({"event": "output", **item.to_dict()}, indent=None),
            lambda result: emit({"event": "result", **result.to_dict()}, indent=None),
        )
    if options.form == "text":
        from kernelbox.cli.terminal._pretty import Screen, show_for_model

        screen = Screen(options.output_char_limit or 0)
        return ((lambda item: None), show_for_model) if options.budget else (screen.show, screen.finish)
    if options.form == "short":
        from kernelbox.cli.terminal._short_document import show_short

        return (lambda item: None), show_short
    return (lambda item: None), (lambda result: emit(result.to_dict()))


def _read_key(options: Namespace) -> str:
    sandbox = choose_sandbox(options.sandbox, options.sandbox_config, options.sandbox_level)
    limits = None
    if options.limit:
        from kernelbox.base._limits import parse_limits

        limits = parse_limits(options.limit)
    python = {"python": options.python, "requirements": options.packages}
    walled = sandbox is not None or limits is not None or any(value is not None for value in python.values())
    if options.id is None:
        if walled and not _has_death_to_tell(options.name):
            _sync.get_or_create(options.name, limits=limits, sandbox=sandbox, progress=say, **python)
        return str(options.name)
    if walled:
        raise InvalidInput.saying(
            "--limit, --sandbox, --python and --with are for a kernel that --name opens; the kernel of an id exists "
            "already"
        )
    if is_kernel_id(options.id):
        return str(options.id)
    return _sync.status(options.id).kernel_id  # a name, which must exist: only --name opens a kernel


def _has_death_to_tell(name: str) -> bool:
    """Tells whether the kernel of a name died since its last use; then the cell reports that death."""
    here = kernels()
    record = here.find(check_name(name))
    return record is not None and not record.alive and not here.condition.was_reported(record)


_HOW_TO_GIVE_CODE = "give it after the name, with -f FILE, or on stdin"


def _read_code(options: Namespace) -> str:
    if options.code is not None and options.file is not None:
        raise InvalidInput.saying(f"there is code in two places; {_HOW_TO_GIVE_CODE}")
    if options.code not in (None, "-"):
        return str(options.code) if options.bash else _check_text(options.code)
    source = options.file if options.file not in (None, "-") else None
    if source is None and options.code is None and options.file is None and sys.stdin.isatty():
        raise InvalidInput.saying(_no_code(options))
    try:
        if source is None:
            raw = sys.stdin.buffer.read()
        else:
            with open(source, "rb") as file:
                raw = file.read()
    except OSError as exc:
        told = "stdin" if source is None else repr(source)
        raise InvalidInput.saying(f"the code cannot be read from {told}: {exc.strerror}") from exc
    if not raw and options.code is None and options.file is None:
        raise InvalidInput.saying(_no_code(options))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidInput("the code", raw[:20], "it is not UTF-8 text") from exc


def _no_code(options: Namespace) -> str:
    """Says which word was taken for the kernel's name: it may have been meant as the code."""
    of = f" for the kernel {options.name!r}" if options.name is not None else ""
    return f"there is no code{of}; {_HOW_TO_GIVE_CODE}"


def _check_text(code: str) -> str:
    """Rejects bytes of the command line that are not UTF-8: bash accepts them, Python does not."""
    try:
        code.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInput("the code", code[exc.start : exc.start + 20], "it is not UTF-8 text") from exc
    return code
