"""The command line: JSON on stdout, a sentence on stderr for a failure, and a meaningful exit status."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit status; without arguments it runs ours, and ends the process.

    Everything is imported in here, because most of the time before a command begins goes into imports: Ctrl-C in the
    middle of them ends the process too, and leaves no traceback.
    """
    try:
        from kernelbox.cli._main import main, run

        return main() if arguments is None else run(list(arguments))
    except KeyboardInterrupt:
        if arguments is not None:
            raise
        os._exit(_INTERRUPTED)
