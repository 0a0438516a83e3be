"""Runs the benchmarks and prints the table: `python -m benchmarks [name …]`."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import sys
import tempfile
from importlib.metadata import version

from benchmarks._measure import Row, set_scale, table

BENCHMARKS = (
    *("engine", "cli", "store", "executor", "tools", "tokens", "http", "service", "gateway"),
    *("sandbox", "srt", "guard", "time_travel", "python"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run (all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="measure this part of what a whole run does (1)")
    options = parser.parse_args()
    names = options.names or BENCHMARKS
    set_scale(options.scale)
    print(_machine(), flush=True)
    folder = tempfile.mkdtemp(prefix="kbx-")
    os.environ["KERNELBOX_HOME"] = os.path.join(folder, "home")
    os.environ["KERNELBOX_KEY_FILE"] = os.path.join(folder, "key")  # servers are kept beside it
    rows: list[Row] = []
    try:
        for name in names:
            for row in importlib.import_module(f"benchmarks.bench_{name}").rows():
                print(
                    f"… {row.what}: {row.value} {row.ratio} {'' if row.ok is not False else '(missed)'}",
                    file=sys.stderr,
                )
                rows.append(row)
    finally:
        import kernelbox

        for record in kernelbox.list_kernels():
            kernelbox.destroy(record)
        shutil.rmtree(folder, ignore_errors=True)
    print(table(rows))


def _machine() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("ipython", "ipykernel", "jupyter_client"))
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.release()}, "
        f"{os.cpu_count()} cores; {libraries}\n"
    )


if __name__ == "__main__":
    main()
