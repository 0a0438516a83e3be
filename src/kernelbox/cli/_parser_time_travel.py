"""The options of the commands about copies: branch, checkpoint, checkpoints, rollback, drop, promote."""

from __future__ import annotations

from kernelbox.base._command_line import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_branch_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--to", action="append", required=True, metavar="NAME", help="the name of a branch; may be repeated"
    )
    parser.add_argument(
        "--same-random", action="store_true", help="keep the state of random numbers, which begin anew otherwise"
    )
    _patience(parser)


def add_checkpoint_options(parser: ArgumentParser) -> None:
    parser.add_argument("--label", help="what to call it; it always has a number")
    _patience(parser)


def add_rollback_options(parser: ArgumentParser) -> None:
    parser.add_argument("--to", metavar="CHECKPOINT", help="its number or label (the last one)")


def add_drop_options(parser: ArgumentParser) -> None:
    parser.add_argument("--checkpoint", required=True, help="its number or label")


def add_promote_options(parser: ArgumentParser) -> None:
    _patience(parser)


def _patience(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="wait at most this long for a running cell (0: KERNELBOX_EXECUTION_TIMEOUT)",
    )
