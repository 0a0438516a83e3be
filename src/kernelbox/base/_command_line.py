"""Options that the commands of `kernelbox` and `python -m kernelbox.gateway` share."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

# int() rejects texts of thousands of digits, and no count needs that many.
MOST_DIGITS = 18

_EACH_KERNEL = "what each kernel may use, such as memory=512MB; may be repeated (KERNELBOX_LIMIT_*)"


def add_flag(parser: ArgumentParser, option: str, text: str) -> None:
    """Adds an option without a value."""
    parser.add_argument(option, action="store_true", help=text)


def add_seconds(parser: ArgumentParser, option: str, text: str, default: float | None = None) -> None:
    """Adds an option that is a number of seconds."""
    parser.add_argument(option, type=seconds, default=default, metavar="SECONDS", help=text)


def add_limit_option(parser: ArgumentParser, text: str = _EACH_KERNEL) -> None:
    """Adds the option that `parse_limits` reads."""
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE", help=text)


def add_sandbox_options(parser: ArgumentParser, whom: str) -> None:
    """Adds the options for `choose_sandbox`; `whom` says which kernels are confined."""
    parser.add_argument(
        "--sandbox", action="store_true", help=f"confine {whom}: no network, and it writes only in its directory"
    )
    parser.add_argument("--sandbox-config", metavar="FILE", help="what the sandbox allows; needs --sandbox")
    parser.add_argument(
        "--sandbox-level",
        choices=["native", "srt"],
        help="what makes it: kernelbox alone, or sandbox-runtime as well (native); needs --sandbox",
    )


def seconds(text: str) -> float:
    """Returns a number of seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    if value < 0:
        raise ArgumentTypeError(f"{text!r} is less than 0 seconds")
    return value


def count(text: str) -> int:
    """Returns a whole number of 0 or more."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)
