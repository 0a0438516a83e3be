"""The options of each command. Only the parser of the command at hand is built."""

from __future__ import annotations

import argparse

from kernelbox.base._command_line import (
    MOST_DIGITS,
    add_flag,
    add_limit_option,
    add_sandbox_options,
    add_seconds,
    count,
)
from kernelbox.cli._command_table import EXAMPLES
from kernelbox.cli._short_call import choose_form
from kernelbox.cli.terminal._output import show_help

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import NoReturn

    from kernelbox.cli._command_table import Command

# What every terminal has, and the documentation shows.
_WIDTH = 80


class UsageError(Exception):
    """A command line that cannot be understood."""


def parse(command: Command, words: list[str]) -> argparse.Namespace:
    """Returns the options on a command line; raises UsageError."""
    parser, after = parser_for(command), []
    takes_program = command.name == "tools"
    if "--" in words and (takes_program or parser.takes_words):
        at = words.index("--")
        words, after = words[:at], words[at + 1 :]
    try:
        if (unknown := parser.find_unknown(words)) is not None:
            parser.error(_no_option(parser, unknown, takes_code=command.name in ("exec", "run")))
        options, more = parser.parse_known_args(words)
        if parser.takes_words:
            _place(parser, options, more + after)
        elif more:
            parser.error(f"unexpected: {' '.join(map(repr, more))}")
    except UsageError as exc:
        if takes_program and str(exc).startswith("unexpected") and not after:
            wrong = str(exc).partition("; see `")[0]
            raise UsageError(f"{wrong}; the command of a server comes after --") from exc
        raise
    options.program = after if takes_program else []
    choose_form(command.name, options)
    return options


def _place(parser: Parser, options: argparse.Namespace, more: list[str]) -> None:
    """Finds the names of kernels and the code among the words that are not options.

    argparse leaves over `more` of them: those that follow an option, or `--`. The first word is the kernel's name,
    unless an option names the kernel.
    """
    first = [getattr(options, name) for name in ("target", "code", "path") if name in options]
    lists = [getattr(options, name) for name in ("names", "words") if name in options]
    several = [word for words in lists for word in (words if isinstance(words, list) else [words])]
    words = [word for word in (*several, *first) if word is not None]
    words += more
    named = [word for word in (options.name, getattr(options, "id", None)) if word is not None]
    if "code" in options:
        if not named and not words:
            parser.error("the kernel's name is missing")
        if not named:
            options.name = words.pop(0)
        options.code = words.pop(0) if words else None
    else:
        if named and words and "path" not in options and "words" not in options:
            parser.error(f"the kernel is named twice: {named[0]!r} and {words[0]!r}")
        if not named and not words and not getattr(options, "template", False):
            parser.error("the kernel's name is missing")
        most = len(words) if isinstance(options.names, list) else 1
        if not named:
            named, words = words[:most], words[most:]
        options.names = named
        if "path" in options and words:
            options.path = words.pop(0)
        if "words" in options:
            words = _fill(parser, options, words)
    if words:
        parser.error(f"unexpected: {' '.join(map(repr, words))}")


def _fill(parser: Parser, options: argparse.Namespace, words: list[str]) -> list[str]:
    """Gives the words after the kernel's name to the option that they stand for; returns those that are left over."""
    option = options.words_are
    given = getattr(options, option)
    if isinstance(given, list):
        given, words = [*given, *words], []
    elif given is None and words:
        given, words = words[0], words[1:]
    setattr(options, option, given)
    if not given and options.needs_words:
        parser.error(f"the {options.needs_words} is missing")
    return words


def _no_option(parser: Parser, word: str, *, takes_code: bool) -> str:
    """Names the unknown option and the one that may have been meant. argparse would name another option."""
    near = close_to(word, [name for name in parser.option_names if name.startswith("--")])
    if near is not None:
        return f"there is no option {word}; did you mean {near}?"
    if takes_code:
        return f"there is no option {word}; code that begins with a dash comes after --: -- {word!r}"
    return f"there is no option {word}"


def close_to(word: str, known: list[str]) -> str | None:
    """Returns the known word that is closest to a misspelt one, or None."""
    from difflib import get_close_matches  # only where there is a mistake: it takes 5 ms to import

    found = get_close_matches(word, known, 1)
    return found[0] if found else None


def parser_for(command: Command) -> Parser:
    """Builds the parser of a command."""
    parser = Parser(
        prog=f"kernelbox {command.name}",
        description=command.summary[0].upper() + command.summary[1:] + ".",
        epilog=f"examples:\n{EXAMPLES[command.name]}",
        formatter_class=_Formatter,
        allow_abbrev=False,
        add_help=False,
    )
    _OPTIONS[command.name](parser)
    parser.add_argument("-h", "--help", action="help", help="show this text")
    return parser


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of ending the process."""

    def print_help(self, file: object = None) -> None:
        show_help(self.format_help())

    @property
    def option_names(self) -> list[str]:
        return list(self._option_string_actions)

    @property
    def takes_words(self) -> bool:
        """Whether words that are not options name kernels, or are code."""
        return any(action.dest in ("names", "code") for action in self._actions)

    def find_unknown(self, words: list[str]) -> str | None:
        """Returns the first unknown option on a command line."""
        for word in words[: words.index("--")] if "--" in words else words:
            name = word.partition("=")[0]
            looks_like_option = name.startswith("-") and name.strip("-")[:1].isalpha() and " " not in name
            joined = not name.startswith("--") and name[:2] in self.option_names  # `-fFILE`
            if looks_like_option and not joined and name not in self.option_names:
                return name
        return None

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            message = self._ask_for_choice() or message
        raise UsageError(message if "; " in message else f"{message}; see `{self.prog} --help`")

    def _ask_for_choice(self) -> str | None:
        """Names what can stand where a word is missing, if that is one of a few words."""
        choices = next((action.choices for action in self._actions if action.required and action.choices), None)
        return f"`{self.prog}` needs one of {', '.join(choices)}" if choices else None


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH, max_help_position=28)


def _exec(parser: Parser) -> None:
    _code(parser)
    add_flag(parser, "--stream", "print each output at once, as JSON lines; the last line is the result")
    _forms(parser, "print like `kernelbox run`", ("--full", "--json"), "print the whole result as JSON")


def _run(parser: Parser) -> None:
    _code(parser)
    parser.set_defaults(form="text", stream=False)


def _code(parser: Parser) -> None:
    """Adds the options of commands that run code."""
    parser.add_argument("target", nargs="?", metavar="NAME", help="the kernel's name; a new name opens a kernel")
    parser.add_argument("code", nargs="?", metavar="CODE", help="the code; without it, stdin is read")
    _target(parser)
    parser.add_argument("-f", "--file", metavar="FILE", help="read the code from a file")
    add_flag(parser, "--bash", "the code is for bash, not Python")
    add_seconds(parser, "--timeout", "stop the code after this long (0: KERNELBOX_EXECUTION_TIMEOUT)")
    parser.add_argument(
        "--output-char-limit",
        type=_characters,
        metavar="N",
        help="keep this many characters of each text, 0 for all (KERNELBOX_OUTPUT_CHAR_LIMIT)",
    )
    parser.add_argument(
        "--budget", type=count, metavar="N", help="shorten `text`, which is for a model, to this many characters"
    )
    parser.add_argument("--images-dir", metavar="DIR", help="where images are written (images/ in KERNELBOX_HOME)")
    parser.add_argument(
        "--approve",
        choices=["all", "ask", "none"],
        help="what to do with tool calls and shell commands: run all, ask at the terminal, or reject all; "
        "without it, shell commands run and tool calls are rejected",
    )
    _walls(parser, "a limit of the kernel that a new name opens, such as memory=512MB; may be repeated")


def _create(parser: Parser) -> None:
    parser.add_argument("names", nargs="?", metavar="NAME", help="the name to give it")
    parser.add_argument("--name", help="the same, as an option")
    parser.add_argument("--cwd", metavar="DIR", help="the directory it starts in (the current one)")
    parser.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="a tag; may be repeated")
    parser.add_argument("--kernel-type", metavar="TYPE", help="a Jupyter kernelspec (KERNELBOX_KERNEL_TYPE)")
    _walls(parser, "what it may use, such as memory=512MB; may be repeated (KERNELBOX_LIMIT_*)")
    _pretty(parser)


def _list(parser: Parser) -> None:
    add_flag(parser, "--refresh", "ask each kernel for a sign of life")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--all", action="store_true", help="show the kernels of all your directories")
    group.add_argument(
        "--tree", action="store_true", help="show branches below their originals, and the checkpoints of each"
    )
    parser.add_argument("--names", dest="only_names", action="store_true", help=argparse.SUPPRESS)
    _pretty(parser)


def _one(parser: Parser) -> None:
    _kernel(parser)
    _pretty(parser)


def _kernel(parser: Parser) -> None:
    parser.add_argument("names", nargs="?", metavar="NAME", help="the kernel's name")
    _target(parser)


def _some(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="the kernel's name; several may be given")
    _target(parser)
    _pretty(parser)


def _cache(parser: Parser) -> None:
    add_flag(parser, "--clean", "remove the environments that no live kernel runs in")
    _pretty(parser)


def _wipe(parser: Parser) -> None:
    add_flag(
        parser,
        "--stale",
        "end only kernels idle for longer than KERNELBOX_KERNEL_IDLE_TIMEOUT; each name says so when next used",
    )
    add_flag(parser, "--all", "do so in all your directories")
    _pretty(parser)


def _history(parser: Parser) -> None:
    _one(parser)
    parser.add_argument("--last", type=count, default=0, metavar="N", help="only this many, the last ones")


def _files(parser: Parser) -> None:
    parser.add_argument("names", nargs="?", metavar="NAME", help="the kernel's name")
    parser.add_argument("path", nargs="?", metavar="DIR", help="the directory to list (the kernel's own)")
    _target(parser)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--read", metavar="FILE", help="print a file to stdout, as it is")
    action.add_argument("--write", metavar="FILE", help="write stdin to a file")
    _pretty(parser)


def _console(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", default="console", help="the kernel's name (console); a new name opens one")
    _walls(parser, "a limit of the kernel that a new name opens, such as memory=512MB; may be repeated")


def _logs(parser: Parser) -> None:
    _one(parser)
    add_flag(parser, "--template", "the log of the templates instead of a kernel's")
    parser.add_argument("--lines", type=count, default=200, metavar="N", help="how many lines, from the end (200)")


def _tools(parser: Parser) -> None:
    parser.usage = "kernelbox tools ACTION [NAME] [OPTION ...] [-- COMMAND ...]"
    parser.add_argument("action", choices=["add", "list", "remove", "refresh"])
    parser.add_argument("name", nargs="?", help="the server's name; refresh without one refreshes all")
    parser.add_argument("--url", help="the address of a running server; otherwise give its command after --")
    parser.add_argument(
        "--transport", choices=["streamable_http", "sse"], help="how to talk to the address (guessed by default)"
    )
    for option, what in (("--header", "a header for the address"), ("--env", "a variable for the command")):
        text = f"{what}; may be repeated"
        parser.add_argument(option, action="append", default=[], metavar="NAME=VALUE", help=text)
    parser.add_argument("--server-cwd", metavar="DIR", help="the directory that the command is run in")
    parser.add_argument("--root", default="mcptools", metavar="DIR", help="where packages are written (mcptools)")
    add_seconds(parser, "--connect-timeout", "how long to wait for a server (30)", 30.0)


def _tour(parser: Parser) -> None:
    add_flag(parser, "--no-pauses", "do not wait for a key after each step")


def _branch(parser: Parser) -> None:
    _one(parser)
    _word(parser, "to", "BRANCH", "the name of a branch; several may be given", nargs="*", needed="branch's name")
    parser.add_argument(
        "--to", action="append", default=[], metavar="BRANCH", help="the same, as an option; may be repeated"
    )
    add_flag(parser, "--same-random", "keep the state of random numbers, which begin anew otherwise")
    _patience(parser)


def _checkpoint(parser: Parser) -> None:
    _one(parser)
    _word(parser, "label", "LABEL", "what to call it; it always has a number")
    parser.add_argument("--label", help="the same, as an option")
    _patience(parser)


def _rollback(parser: Parser) -> None:
    _one(parser)
    _word(parser, "to", "CHECKPOINT", "its number or label (the last one)")
    parser.add_argument("--to", metavar="CHECKPOINT", help="the same, as an option")


def _drop(parser: Parser) -> None:
    _one(parser)
    _word(parser, "checkpoint", "CHECKPOINT", "its number or label", needed="checkpoint")
    parser.add_argument("--checkpoint", metavar="CHECKPOINT", help="the same, as an option")


def _promote(parser: Parser) -> None:
    _one(parser)
    _patience(parser)


def _word(parser: Parser, option: str, metavar: str, what: str, *, nargs: str = "?", needed: str = "") -> None:
    """Lets what comes after the kernel's name stand for an option; `needed` is what to call it where it is missing."""
    parser.add_argument("words", nargs=nargs, metavar=metavar, help=what)
    parser.set_defaults(words_are=option, needs_words=needed)


def _patience(parser: Parser) -> None:
    add_seconds(parser, "--timeout", "wait at most this long for a running cell (0: KERNELBOX_EXECUTION_TIMEOUT)")


def _servers() -> ModuleType:
    from kernelbox.cli import _parser_servers  # only the commands that serve need it

    return _parser_servers


def _target(parser: Parser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--name", help="its name, as an option")
    group.add_argument("--id", help="its id or name; opens nothing")


def _walls(parser: Parser, limits: str) -> None:
    """Adds the limits, the sandbox and the interpreter of a new kernel."""
    add_limit_option(parser, limits)
    add_sandbox_options(parser, "a kernel that is opened")
    parser.add_argument("--python", metavar="PYTHON", help="its interpreter: a path, an environment, 3.12 or project")
    parser.add_argument("--with", dest="packages", action="append", metavar="PACKAGE", help="install a package for it")


def _pretty(parser: Parser) -> None:
    _forms(parser, "print for people, as on a terminal", ("--json",), "print the JSON document, as in a pipe")


def _forms(parser: Parser, text: str, json_options: tuple[str, ...], json: str) -> None:
    for form, options, told in (("text", ("--text", "--pretty"), text), ("json", json_options, json)):
        parser.add_argument(*options, dest="form", action="store_const", const=form, help=told)


def _characters(text: str) -> int:
    digits = text.removeprefix("-")  # negative numbers keep everything, as in the API
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of characters")
    return int(text)


_OPTIONS: dict[str, Callable[[Parser], object]] = {
    "exec": _exec,
    "run": _run,
    "create": _create,
    "list": _list,
    "status": _one,
    "interrupt": _some,
    "restart": _some,
    "destroy": _some,
    "wipe": _wipe,
    "cache": _cache,
    "branch": _branch,
    "checkpoint": _checkpoint,
    "checkpoints": _one,
    "rollback": _rollback,
    "drop": _drop,
    "promote": _promote,
    "variables": _one,
    "history": _history,
    "files": _files,
    "top": _pretty,
    "export": _kernel,
    "console": _console,
    "mcp": lambda parser: _servers().add_mcp_options(parser),
    "serve": lambda parser: _servers().add_serve_options(parser),
    "jupyter": lambda parser: _servers().add_jupyter_options(parser),
    "logs": _logs,
    "tools": _tools,
    "tour": _tour,
    "doctor": _pretty,
    "version": _pretty,
    "completion": lambda parser: parser.add_argument("shell", choices=["bash", "zsh", "fish"]),
}
