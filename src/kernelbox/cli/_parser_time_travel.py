"""The options of the commands about copies: branch, checkpoint, checkpoints, rollback, drop, promote."""

from __future__ import annotations

from kernelbox.base._command_line import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_branch_options(parser: ArgumentParser) -> None:
    _word(parser, "to", "BRANCH", "the name of a branch; several may be given", nargs="*", needed="branch's name")
    parser.add_argument(
        "--to", action="append", default=[], metavar="BRANCH", help="the same, as an option; may be repeated"
    )
    parser.add_argument(
        "--same-random", action="store_true", help="keep the state of random numbers, which begin anew otherwise"
    )
    _patience(parser)


def add_checkpoint_options(parser: ArgumentParser) -> None:
    _word(parser, "label", "LABEL", "what to call it; it always has a number")
    parser.add_argument("--label", help="the same, as an option")
    _patience(parser)


def add_rollback_options(parser: ArgumentParser) -> None:
    _word(parser, "to", "CHECKPOINT", "its number or label (the last one)")
    parser.add_argument("--to", metavar="CHECKPOINT", help="the same, as an option")


def add_drop_options(parser: ArgumentParser) -> None:
    _word(parser, "checkpoint", "CHECKPOINT", "its number or label", needed="checkpoint")
    parser.add_argument("--checkpoint", metavar="CHECKPOINT", help="the same, as an option")


def add_promote_options(parser: ArgumentParser) -> None:
    _patience(parser)


def _word(parser: ArgumentParser, option: str, metavar: str, what: str, *, nargs: str = "?", needed: str = "") -> None:
    """Lets what comes after the kernel's name stand for an option; `needed` is what to call it where it is missing."""
    parser.add_argument("words", nargs=nargs, metavar=metavar, help=what)
    parser.set_defaults(words_are=option, needs_words=needed)


def _patience(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="wait at most this long for a running cell (0: KERNELBOX_EXECUTION_TIMEOUT)",
    )
