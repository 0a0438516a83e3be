"""The options of each command. Only the parser of the command at hand is built."""

from __future__ import annotations

import argparse

from kernelbox.base._command_line import MOST_DIGITS, add_limit_option, add_sandbox_options, count, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import NoReturn

    from kernelbox.cli._command_table import Command

# Help is as wide as documentation shows it, whatever the terminal; asking the terminal would import shutil.
_WIDTH = 100


class UsageError(Exception):
    """A command line that cannot be understood."""

    def __init__(self, sentence: str, usage: str) -> None:
        super().__init__(sentence)
        self.usage = usage


def parse(command: Command, words: list[str]) -> argparse.Namespace:
    """Returns the options on a command line; raises UsageError."""
    program: list[str] = []
    if command.name == "tools" and "--" in words:  # what follows is another program's command line
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    parser = parser_for(command)
    try:
        options = parser.parse_args(words)
    except UsageError as exc:
        unknown = parser.find_unknown(words)
        if unknown is None and command.name == "tools" and not program:
            raise UsageError(f"{exc}; the command of a server comes after --", exc.usage) from exc
        if unknown is None:
            raise
        raise UsageError(_no_option(parser, unknown, takes_code=command.name == "exec"), exc.usage) from exc
    options.program = program
    return options


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
        epilog="examples:\n" + "".join(f"  {example}\n" for example in command.examples),
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
        print(self.format_help(), end="", flush=True)

    @property
    def option_names(self) -> list[str]:
        return list(self._option_string_actions)

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
        raise UsageError(message, self.format_usage())


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH, max_help_position=28)


def _exec(parser: Parser) -> None:
    _target(parser, "its name; a new name opens a kernel")
    parser.add_argument("code", nargs="?", help="the code, or - to read it from stdin")
    parser.add_argument("-f", "--file", metavar="FILE", help="read the code from a file")
    parser.add_argument("--bash", action="store_true", help="the code is for bash, not Python")
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="stop the code after this long (0: KERNELBOX_EXECUTION_TIMEOUT)",
    )
    parser.add_argument(
        "--output-char-limit",
        type=_characters,
        metavar="N",
        help="keep this many characters of each text, 0 for all (KERNELBOX_OUTPUT_CHAR_LIMIT)",
    )
    parser.add_argument("--images-dir", metavar="DIR", help="where images are written (images/ in KERNELBOX_HOME)")
    parser.add_argument(
        "--stream", action="store_true", help="print each output at once, as JSON lines; the last line is the result"
    )
    parser.add_argument(
        "--approve",
        choices=["all", "ask", "none"],
        help="what to do with tool calls and shell commands: run all, ask at the terminal, or reject all; "
        "without it, shell commands run and tool calls are rejected",
    )
    _walls(parser, "a limit of the kernel that a new name opens, such as memory=512MB; may be repeated")
    _pretty(parser)


def _create(parser: Parser) -> None:
    parser.add_argument("--name", required=True, help="the name to give it")
    parser.add_argument("--cwd", metavar="DIR", help="the directory it starts in (the current one)")
    parser.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="a tag; may be repeated")
    parser.add_argument("--kernel-type", metavar="TYPE", help="a Jupyter kernelspec (KERNELBOX_KERNEL_TYPE)")
    _walls(parser, "what it may use, such as memory=512MB; may be repeated (KERNELBOX_LIMIT_*)")
    _pretty(parser)


def _list(parser: Parser) -> None:
    parser.add_argument("--refresh", action="store_true", help="ask each kernel for a sign of life")
    parser.add_argument("--all", action="store_true", help="show the kernels of all your directories")
    parser.add_argument("--names", action="store_true", help=argparse.SUPPRESS)
    _pretty(parser)


def _one(parser: Parser) -> None:
    _target(parser, "its name")
    _pretty(parser)


def _wipe(parser: Parser) -> None:
    parser.add_argument(
        "--stale",
        action="store_true",
        help="end only kernels idle for longer than KERNELBOX_KERNEL_IDLE_TIMEOUT; each name says so when next used",
    )
    parser.add_argument("--all", action="store_true", help="do so in all your directories")
    _pretty(parser)


def _console(parser: Parser) -> None:
    parser.add_argument("name", help="the kernel's name; a new name opens one")
    _walls(parser, "a limit of the kernel that a new name opens, such as memory=512MB; may be repeated")


def _logs(parser: Parser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--name", help="the kernel's name")
    group.add_argument("--id", help="the kernel's id")
    group.add_argument("--template", action="store_true", help="the log of the templates instead of a kernel's")
    parser.add_argument("--lines", type=count, default=200, metavar="N", help="how many lines, from the end (200)")
    _pretty(parser)


def _tools(parser: Parser) -> None:
    parser.usage = "kernelbox tools {add,list,remove,refresh} [NAME] [OPTION ...] [-- COMMAND ...]"
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
    parser.add_argument(
        "--connect-timeout", type=seconds, default=30.0, metavar="SECONDS", help="how long to wait for a server (30)"
    )


def _servers() -> ModuleType:
    from kernelbox.cli import _parser_servers  # only the commands that serve need it

    return _parser_servers


def _target(parser: Parser, name_help: str) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--name", help=name_help)
    group.add_argument("--id", help="its id or name")


def _walls(parser: Parser, limits: str) -> None:
    """Adds the limits and the sandbox of a new kernel."""
    add_limit_option(parser, limits)
    add_sandbox_options(parser, "a kernel that is opened")


def _pretty(parser: Parser) -> None:
    parser.add_argument("--pretty", action="store_true", help="print for people instead of JSON")


def _characters(text: str) -> int:
    digits = text.removeprefix("-")  # negative numbers keep everything, as in the API
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of characters")
    return int(text)


_OPTIONS: dict[str, Callable[[Parser], object]] = {
    "exec": _exec,
    "create": _create,
    "list": _list,
    "status": _one,
    "interrupt": _one,
    "restart": _one,
    "destroy": _one,
    "wipe": _wipe,
    "export": lambda parser: _target(parser, "its name"),
    "console": _console,
    "mcp": lambda parser: _servers().add_mcp_options(parser),
    "serve": lambda parser: _servers().add_serve_options(parser),
    "jupyter": lambda parser: _servers().add_jupyter_options(parser),
    "logs": _logs,
    "tools": _tools,
    "doctor": _pretty,
    "version": _pretty,
    "completion": lambda parser: parser.add_argument("shell", choices=["bash", "zsh", "fish"]),
}
