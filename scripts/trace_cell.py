"""Counts how often the executing file of kernelbox changes while one warm cell, `1+1`, is run.

    python scripts/trace_cell.py [--list]

A switch is counted when a function of kernelbox is called and the last call was of a function in another file: returns
do not count, nor does code of other packages. Counted are `execute(record, "1+1")` and `execute("name", "1+1")` on the
host, and in the kernel's process one turn of its loop: from waiting for the request to waiting for the next. `--list`
prints the calls, each file's on one line.

When this was written it counted 72 by record, 143 by name and 134 in the kernel (Python 3.11).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType

import kernelbox

# Cells; constructors of values are compiled after 50 calls (wire/_values.py).
_WARM_UP = 100
_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(kernelbox.__file__)), "")

# In the kernel: notes the calls of one turn of its loop. What keeps profilers from seeing the kernel's own code would
# stop this one, too; a stand-in in the same place makes the same calls.
_NOTE_ONE_TURN = """
def install():
    import sys
    kernel, calls = get_ipython().kernel, []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith({package!r}):
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    class NoTraces:
        def resume(self): pass
        def suspend(self): pass

    usual, traces = kernel._serve_one, kernel._cells._traces

    def serve_one():
        kernel._serve_one, kernel._cells._traces = usual, NoTraces()
        sys.setprofile(note)
        try:
            usual()
        finally:
            sys.setprofile(None)
            kernel._cells._traces = traces

    kernel._serve_one = serve_one
    return calls

calls = install()
"""

Call = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the calls as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["KERNELBOX_HOME"] = home
        os.chdir(home)
        record = kernelbox.get_or_create("trace")
        try:
            report("host, by record", trace(lambda: kernelbox.execute(record, "1+1")), listed=options.list)
            report("host, by name", trace(lambda: kernelbox.execute("trace", "1+1")), listed=options.list)
            report("guest", trace_guest(record), listed=options.list)
        finally:
            kernelbox.wipe()  # with the template


def trace(run: Callable[[], object]) -> list[Call]:
    """Returns the calls of kernelbox's functions in one run, after a few that are not noted."""
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    for _ in range(_WARM_UP):
        run()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def trace_guest(record: kernelbox.KernelRecord) -> list[Call]:
    for _ in range(_WARM_UP):
        kernelbox.execute(record, "1+1")
    kernelbox.execute(record, _NOTE_ONE_TURN.format(package=_PACKAGE))
    kernelbox.execute(record, "1+1")
    told = kernelbox.execute(record, "import json; print(json.dumps(calls))", output_char_limit=1_000_000)
    return [(file, name) for file, name in json.loads(told.text)]


def report(title: str, calls: list[Call], *, listed: bool) -> None:
    stretches = list(by_file(calls))
    files = {file for file, _ in stretches}
    print(f"{title}: {len(stretches) - 1} switches of file, {len(calls)} calls, {len(files)} files")
    for file, names in stretches if listed else ():
        print(f"    {file}: {', '.join(names)}")


def by_file(calls: list[Call]) -> Iterator[tuple[str, list[str]]]:
    for file, group in groupby(calls, key=lambda call: call[0]):
        yield str(Path(file).relative_to(_PACKAGE)), [name for _, name in group]


if __name__ == "__main__":
    main()
