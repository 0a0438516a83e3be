"""Kernels of another interpreter: how long one takes to start, beside an own one."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kernelbox
from benchmarks._measure import Row, interleaved, percentile, show


def rows() -> Iterator[Row]:
    """Yields one row: both templates are warm."""
    with tempfile.TemporaryDirectory(prefix="kbx-python-") as place:
        environment = _make_environment(Path(place) / "env")
        names = iter(range(1_000_000))

        def start(python: Path | None) -> None:
            kernel = kernelbox.create(f"python-{next(names)}", python=python)
            kernelbox.execute(kernel, "1+1")
            kernelbox.destroy(kernel)

        for python in (None, environment):
            start(python)
        taken = interleaved({"other": lambda: start(environment), "own": lambda: start(None)}, rounds=20, batch=3)
        ratio = percentile(taken["other"], 50) / percentile(taken["own"], 50)
        yield Row(
            "life of a kernel of another interpreter, template warm",
            show(taken["other"]),
            f"own interpreter {show(taken['own'])}",
            f"{ratio:.2f} ×",
            "≤ 1.3 ×",
            ratio <= 1.3,
        )


def _make_environment(directory: Path) -> Path:
    """Makes an environment that finds our packages, and has none of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (folder,) = directory.glob("lib/python*/site-packages")
    (folder / "ours.pth").write_text(sysconfig.get_path("purelib"))
    return directory
