"""Command lines of `exec` and `run` with a name, code and few options. Importing argparse would take 8 ms."""

from __future__ import annotations

import sys

from kernelbox.base._config import wanted_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

# What argparse gives options that are not on the line.
_ABSENT: dict[str, object] = {
    **dict.fromkeys(("target", "code", "name", "id", "file", "timeout", "output_char_limit", "budget", "images_dir")),
    **dict.fromkeys(("approve", "sandbox_config", "sandbox_level", "python", "packages", "form")),
    **dict.fromkeys(("bash", "stream", "sandbox"), False),
}

# Options without a value: what they set.
_FLAGS: dict[str, dict[str, tuple[str, object]]] = {
    "run": {"--bash": ("bash", True)},
    "exec": {
        "--bash": ("bash", True),
        "--stream": ("stream", True),
        **dict.fromkeys(("--text", "--pretty"), ("form", "text")),
        **dict.fromkeys(("--full", "--json"), ("form", "json")),
    },
}


class ShortCall:
    """Options, like a Namespace of argparse."""

    form: str | None
    pretty: bool

    def __init__(self, options: dict[str, object]) -> None:
        vars(self).update(options)

    def __contains__(self, name: str) -> bool:
        return name in vars(self)


def read_short(command: str, words: list[str]) -> Any:
    """Returns the options on a command line; None for one that argparse must read, or complain about."""
    flags = _FLAGS.get(command)
    if flags is None:
        return None
    options = {**_ABSENT, "limit": [], "program": [], "form": "text" if command == "run" else None}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            rest.append(word)
        elif word in flags:
            options.update([flags[word]])
        elif word in ("--name", "--id") and options["name"] is options["id"] is None:
            value = next(left, "-")
            if value.startswith("-"):
                return None
            options[word[2:]] = value
        else:
            return None
    if options["name"] is options["id"] is None and rest:
        options["name"] = rest.pop(0)
    elif not rest and options["name"] is options["id"] is None:
        return None
    if len(rest) > 1:
        return None
    options["code"] = rest[0] if rest else None
    call = ShortCall(options)
    choose_form(command, call)
    return call


def choose_form(command: str, options: Namespace | ShortCall) -> None:
    """Decides how the answer is printed: `--text` and `--json` first, then KERNELBOX_FORMAT, then what stdout is."""
    if "form" not in options:
        return
    wanted = wanted_format()
    on_screen = "short" if command == "exec" else "text"
    usual = "text" if command in ("run", "top") else wanted or (on_screen if sys.stdout.isatty() else "json")
    options.form = options.form or usual
    options.pretty = options.form == "text"
