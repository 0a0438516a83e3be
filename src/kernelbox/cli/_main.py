"""Runs a command line: finds the command, and turns every failure into a sentence and an exit status."""

from __future__ import annotations

import gc
import os
import sys

from kernelbox import __version__
from kernelbox.cli.terminal._output import FAILED, INTERRUPTED, WRONG_USAGE, emit, fill_closed_streams, show_help, tell

# Objects that a short call makes before garbage is looked for. Imports make 20,000, which all stay: to look at them
# again and again takes a twelfth of the call.
_GARBAGE = 100_000


def main() -> int:
    """Runs the command line of this process, and ends it."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        fill_closed_streams()
    status = run([word if word.isascii() else _read_word(word) for word in sys.argv[1:]])
    _leave(status)
    return status


def _read_word(word: str) -> str:
    """Decodes a word as UTF-8 if the locale could not, as with LANG=C. Bytes that are not text stay as they are."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return os.fsencode(word).decode("utf-8", "surrogateescape")
    return word


def run(words: list[str]) -> int:
    """Runs a command line. Users never see one of our tracebacks."""
    try:
        if words[:1] == ["help"] and len(words) > 1:
            words = [words[1], "--help"]
        if words[:1] in ([], ["-h"], ["--help"], ["help"]):
            from kernelbox.cli._command_table import top_help

            show_help(top_help())
            return 0
        if words[:1] in (["-V"], ["--version"]):
            print(f"kernelbox {__version__}", flush=True)
            return 0
        status = _dispatch(words)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, words)
    except BrokenPipeError:
        _give_up_stdout()
        return FAILED
    except Exception as exc:  # noqa: BLE001  # the outermost boundary: users get sentences, not tracebacks
        return _translate(exc, words)


def _dispatch(words: list[str]) -> int:
    import warnings

    from kernelbox.cli._short_call import read_short

    warnings.showwarning = _show_warning
    if (short := read_short(words[0], words[1:])) is not None:
        gc.set_threshold(_GARBAGE)
        from kernelbox.cli.commands._exec import run

        return run(short)
    from kernelbox.cli._command_table import find_command
    from kernelbox.cli._parser import UsageError, parse

    try:
        if (command := find_command(words[0])) is None:
            raise UsageError(_no_command(words[0]))
        options = parse(command, words[1:])
    except UsageError as exc:
        return _fail(str(exc), WRONG_USAGE, words)
    return command.load()(options)


def _no_command(word: str) -> str:
    from kernelbox.cli._command_table import COMMANDS
    from kernelbox.cli._parser import close_to

    known = [command.name for command in COMMANDS]
    near = close_to(word, known)
    if near is not None:
        return f"there is no command {word!r}; did you mean {near}?"
    return f"there is no command {word!r}; see `kernelbox --help`"


def _leave(status: int) -> None:
    """Ends the process without tearing down the interpreter, which would take a tenth of a call's time."""
    if "kernelbox.host.files._scratch" in sys.modules:
        return  # its exit function removes a directory
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nothing is left to report it on
        status = status or FAILED
    os._exit(status)


def _translate(exc: Exception, words: list[str]) -> int:
    from kernelbox.base._errors import InvalidInput, KernelBoxError

    if isinstance(exc, KernelBoxError):
        return _fail(str(exc), WRONG_USAGE if isinstance(exc, InvalidInput) else FAILED, words)
    if isinstance(exc, OSError) and exc.filename is None:  # errors about files are KernelBoxErrors by now
        # The system has words for what ails our output. An error of a file in a kernel is a sentence.
        return _fail(f"cannot write the output: {exc.strerror}" if exc.strerror else str(exc), FAILED, words)
    return _fail(f"{type(exc).__name__}: {exc}", FAILED, words)


def _fail(sentence: str, status: int, words: list[str]) -> int:
    """Reports a failure: as one line on stderr and, if stdout is not a terminal, as JSON there.

    The stdout of `mcp` belongs to its client, and that of `run` to the code.
    """
    from kernelbox.base._text import escape

    on_screen = sys.stdout.isatty()
    try:
        if words[:1] not in (["mcp"], ["run"]) and not on_screen:
            emit({"error": sentence})
    except OSError:  # its reader is gone, or the disk is full
        _give_up_stdout()
    told = escape(sentence if on_screen else sentence.partition("\n")[0], keep="\n")
    tell(f"kernelbox: {told or 'failed'}\n")
    return status


def _give_up_stdout() -> None:
    """Keeps the interpreter from complaining at exit that unwritten output has no reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    from kernelbox.base._text import escape

    tell(f"kernelbox: warning: {escape(str(message))}\n")
