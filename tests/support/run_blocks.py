"""Runs the Python blocks of a page: a list of them in, as JSON, and what each printed and raised out."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback


def main() -> None:
    done, environment = [], dict(os.environ)
    for block in json.load(sys.stdin):
        printed, failure = io.StringIO(), ""
        with contextlib.redirect_stdout(printed):
            try:
                # A namespace of its own: every block is a whole program.
                exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})
            except BaseException:  # noqa: BLE001  # the test shows it beside the block
                failure = traceback.format_exc()
        os.environ.clear()
        os.environ.update(environment)  # a program's settings end with it
        done.append({"printed": printed.getvalue(), "failure": failure})
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main()
